//! An API server, or a load balancer before it, that ends a connection of HTTP/2 by GOAWAY: what runs there
//! goes on, and what comes next gets a connection of its own.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_rustls::TlsAcceptor;

use super::gate::{TOOLS, UNTIL_HTTP_2};
use super::run;
use super::trouble::server_certificate;
use crate::fixture::*;

const LARGE: usize = 1 << 20;

/// What the server does, and is told.
#[derive(Default)]
struct Server {
    connections: AtomicUsize,
    /// Of uploads, in bytes.
    received: AtomicUsize,
    /// The connections that are open get GOAWAY.
    leave: Notify,
    /// To whom watches.
    watcher: Mutex<Option<mpsc::UnboundedSender<&'static str>>>,
}

/// An answer, until its sender is dropped.
struct Lines(mpsc::UnboundedReceiver<&'static str>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let line = self.0.poll_recv(context);
        line.map(|line| Some(Ok(Frame::data(Bytes::from_static(line?.as_bytes())))))
    }
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Response<Lines> {
        let (sender, lines) = mpsc::unbounded_channel();
        if request.uri().path() == "/watch" {
            sender.send("first\n").unwrap();
            *self.watcher.lock().unwrap() = Some(sender);
        } else {
            let mut body = request.into_body();
            while let Some(frame) = poll_fn(|it| Pin::new(&mut body).poll_frame(it)).await {
                let length = frame.unwrap().into_data().map_or(0, |data| data.len());
                self.received.fetch_add(length, Ordering::SeqCst);
            }
            sender.send("done\n").unwrap();
        }
        Response::new(Lines(lines))
    }

    async fn serve(self: Arc<Self>, listener: TcpListener, acceptor: TlsAcceptor) {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (server, acceptor) = (Arc::clone(&self), acceptor.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                server.connections.fetch_add(1, Ordering::SeqCst);
                let served = Arc::clone(&server);
                let answer = service_fn(move |request| {
                    let server = Arc::clone(&served);
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                let connection = auto::Builder::new(TokioExecutor::new());
                let mut connection =
                    pin!(connection.serve_connection(TokioIo::new(stream), answer));
                tokio::select! {
                    _ = connection.as_mut() => return,
                    () = server.leave.notified() => {}
                }
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            });
        }
    }

    /// Starts it in place of the cluster that the kubeconfig names.
    fn start(store: &Store) -> Arc<Self> {
        let [own, key] = server_certificate(store.directory.path());
        let own = CertificateDer::from_pem_file(own).unwrap();
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![own], PrivateKeyDer::from_pem_file(key).unwrap())
                .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        cluster().lead_to(store, &format!("https://{}", listener.local_addr().unwrap()));
        let server = Arc::new(Self::default());
        let served = Arc::clone(&server);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                served.serve(TcpListener::from_std(listener).unwrap(), acceptor).await;
            });
        });
        server
    }
}

/// A request to kubectl's proxy, whose body is still to come.
fn begin(address: &str, line: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// Reads up to this.
fn read_to(stream: &mut TcpStream, expected: &str) {
    let mut answer = Vec::new();
    while !answer.ends_with(expected.as_bytes()) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&answer));
        answer.extend(byte);
    }
}

/// Demands this as the end of an answer in chunks.
fn end(mut stream: TcpStream, expected: &str) {
    read_to(&mut stream, &format!("{expected}\r\n0\r\n\r\n"));
}

#[test]
fn a_watch_and_an_upload_outlive_the_goaway_that_ends_their_connection() {
    let store = cluster().token(Kind::P256, JANE);
    // The first connection asks for the server's choice.
    let script = format!("{TOOLS} {UNTIL_HTTP_2}; exec kubectl proxy --port=0");
    let proxy = run(&store, &["bash", "-c", &script]);
    let server = Server::start(&store);
    let mut proxy = proxy.start(None);
    let line = proxy.line();
    let address = line.strip_prefix("Starting to serve on ").expect(&line);

    let mut watch = begin(address, "GET /watch", 0);
    read_to(&mut watch, "first\n");
    let half = [b'x'; LARGE / 2];
    let mut upload = begin(address, "POST /upload", LARGE);
    upload.write_all(&half).unwrap();
    wait_until("half an upload", || server.received.load(Ordering::SeqCst) == LARGE / 2);

    let before = server.connections.load(Ordering::SeqCst);
    server.leave.notify_waiters();
    // Until kubectl has heard it, the old ones serve what comes.
    wait_until("another connection", || {
        end(begin(address, "GET /next", 0), "done\n");
        server.connections.load(Ordering::SeqCst) > before
    });
    upload.write_all(&half).unwrap();
    end(upload, "done\n");
    assert_eq!(server.received.load(Ordering::SeqCst), LARGE);
    let watcher = server.watcher.lock().unwrap().take().unwrap();
    watcher.send("last\n").unwrap();
    drop(watcher);
    end(watch, "last\n");
    kill_process(proxy.pid(), Signal::INT).unwrap();
    proxy.finish().says_only(&[]);
}
