//! The server: listens, has each connection answered, and ends when its last request is answered.

use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::calls;
use crate::signer::{Signer, SignerOptions};
use crate::socket::{ListeningSocket, may_ask};
use messages::error::Error;
use messages::report;
use system::activation::ServiceManager;
use system::background::on_signals;
use system::environment::TakenVariables;
use system::limits::service_account as limits;
use system::signals::INTERRUPTING;
use system::{descriptors, shortage};

/// The most connections at the same time. An API server has one.
const MOST_CONNECTIONS: usize = 64;
/// The most requests of a connection at the same time.
const MOST_REQUESTS: u32 = 1100;
/// The longest headers of a request, in bytes.
const LONGEST_HEADERS: u32 = 16 * 1024;

/// Where a signer listens.
pub enum ListenAt {
    Path(PathBuf),
    /// At the socket that systemd has opened.
    Opened(StdListener),
}

/// What a server needs besides the signer's own options.
pub struct ServerOptions {
    pub listen_at: ListenAt,
    pub variables: TakenVariables,
    pub manager: ServiceManager,
}

/// Opens the keys and serves API servers until a signal ends that. An error if it can't start.
pub fn serve(server: ServerOptions, signer: SignerOptions) -> Result<(), Error> {
    descriptors::raise_limit();
    let [hangup, interruption, termination] = INTERRUPTING;
    let termination = on_signals(&[interruption, termination]).map_err(shortage)?;
    let hangup = on_signals(&[hangup]).map_err(shortage)?;
    let manager = server.manager;
    let signer = Arc::new(Signer::new(signer, server.variables, manager.clone())?);
    let socket = match server.listen_at {
        ListenAt::Path(path) => ListeningSocket::bind(&path)?,
        ListenAt::Opened(listener) => ListeningSocket::of_systemd(listener)?,
    };
    // One thread, which answers thousands of requests a second: between several, each would be handed on more than once.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(shortage)?;
    let signals = Signals { hangup, termination };
    let outcome = runtime.block_on(serve_at(&socket, signer, &manager, signals));
    socket.remove();
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Streams that become readable with each such signal.
struct Signals {
    hangup: StdStream,
    termination: StdStream,
}

/// Serves until a signal ends that, and then answers the requests that are there.
async fn serve_at(
    socket: &ListeningSocket,
    signer: Arc<Signer>,
    manager: &ServiceManager,
    signals: Signals,
) -> Result<(), Error> {
    let mut termination = readable(signals.termination)?;
    let serving = Serving::start(socket, &signer)?;
    tokio::select! {
        started = signer.start() => started?,
        _ = termination.read_u8() => {
            manager.tell("STOPPING=1");
            return Ok(());
        }
    }
    report::note(&format!("serves API servers at {}", socket.path.display()));
    manager.tell("READY=1");
    tokio::spawn(Arc::clone(&signer).supervise());
    tokio::spawn(Arc::clone(&signer).look_after_history());
    let reloading = tokio::spawn(reload_on(signals.hangup, Arc::clone(&signer)));
    let _ = termination.read_u8().await;
    reloading.abort();
    signer.end();
    manager.tell("STOPPING=1\nSTATUS=answers the requests that it has");
    socket.remove();
    serving.end().await;
    signer.write_history();
    Ok(())
}

fn readable(stream: StdStream) -> Result<UnixStream, Error> {
    stream.set_nonblocking(true).map_err(shortage)?;
    UnixStream::from_std(stream).map_err(shortage)
}

/// Has the list of keys read again at each signal.
async fn reload_on(hangup: StdStream, signer: Arc<Signer>) {
    let Ok(mut hangup) = readable(hangup) else { return };
    while hangup.read_u8().await.is_ok() {
        signer.reload();
    }
}

/// The connections that are served.
struct Serving {
    /// Set when no new requests are taken.
    ending: watch::Sender<bool>,
    /// Ends with the last connection.
    open: mpsc::Receiver<()>,
}

impl Serving {
    fn start(socket: &ListeningSocket, signer: &Arc<Signer>) -> Result<Self, Error> {
        socket.listener.set_nonblocking(true).map_err(shortage)?;
        let listener = socket.listener.try_clone().map_err(shortage)?;
        let listener = UnixListener::from_std(listener).map_err(shortage)?;
        let ending = watch::Sender::new(false);
        let (is_open, open) = mpsc::channel(1);
        tokio::spawn(accept(listener, Arc::clone(signer), ending.subscribe(), is_open));
        Ok(Self { ending, open })
    }

    /// Takes no new requests, and waits until those that are there are answered.
    async fn end(mut self) {
        self.ending.send_replace(true);
        let _ = timeout(limits::LAST_REQUESTS, self.open.recv()).await;
    }
}

async fn accept(
    listener: UnixListener,
    signer: Arc<Signer>,
    mut ending: watch::Receiver<bool>,
    is_open: mpsc::Sender<()>,
) {
    /// Without it, a process that has no descriptors left would try again at once.
    const PAUSE: Duration = Duration::from_millis(50);
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ending.changed() => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(room) = Arc::clone(&room).try_acquire_owned() else {
            log::info!("a connection was refused: there are {MOST_CONNECTIONS}");
            continue;
        };
        if !may_ask(&stream) {
            report::warning("another user's process has tried to connect, and was refused");
            continue;
        }
        let (signer, ending, is_open) = (Arc::clone(&signer), ending.clone(), is_open.clone());
        tokio::spawn(async move {
            // A client that says nothing keeps no place from others.
            if let Ok(Ok(())) = timeout(limits::HEADERS, stream.readable()).await {
                answer_all(stream, signer, ending).await;
            }
            drop((room, is_open));
        });
    }
}

/// Answers the requests of a connection, until it or the server ends.
pub(crate) async fn answer_all(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    signer: Arc<Signer>,
    mut ending: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| calls::answer(Arc::clone(&signer), request));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits::HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits::KEEP_ALIVE)
        .keep_alive_timeout(limits::HEADERS)
        .max_concurrent_streams(MOST_REQUESTS)
        .max_header_list_size(LONGEST_HEADERS);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let is_ending = async move {
        if ending.wait_for(|ending| *ending).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = is_ending => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        log::debug!("a connection has ended: {error}");
    }
}
