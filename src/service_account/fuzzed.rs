//! A signer whose token wants a person, for fuzzing what comes over its socket.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::externaljwt::SERVICE;
use crate::key_list::KeyListSource;
use crate::rotation::Timing;
use crate::server::answer_all;
use crate::signer::{Signer, SignerOptions};
use messages::error::{Error, Exit};
use system::activation::ServiceManager;
use system::environment::TakenVariables;
use system::shortage;

/// The signer, and a runtime of one thread for its connections.
pub struct LockedSigner {
    runtime: Runtime,
    signer: Arc<Signer>,
}

impl LockedSigner {
    pub fn new() -> Result<Self, Error> {
        let minute = Duration::from_secs(60);
        let base = [("pathLib", "/no/such.so"), ("tokenLabel", "t")].into_iter().collect();
        let options = SignerOptions {
            keys: KeyListSource::Lines(vec!["1".to_owned()]),
            base,
            timing: Timing { refresh: minute, publish_first: minute, longest_life: minute },
            sessions: 1,
            history: "/no/such/history".into(),
        };
        let signer = Signer::new(options, TakenVariables::default(), ServiceManager::default())?;
        signer.cannot_open(Error::new(Exit::Login, "the PIN was refused").help("mend it"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self { runtime: runtime.map_err(shortage)?, signer: Arc::new(signer) })
    }

    /// What is answered to these first bytes of a connection, behind which nothing comes.
    pub fn hear(&self, bytes: &[u8]) -> Vec<u8> {
        self.runtime.block_on(async {
            let mut client = self.connect();
            let _ = client.write_all(bytes).await;
            let _ = client.shutdown().await;
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer).await;
            answer
        })
    }

    /// gRPC's status code and message for a call of this name with these bytes as its body; `None` if there is no answer.
    pub fn call(&self, name: &str, body: &[u8]) -> Option<(u32, String)> {
        self.runtime.block_on(async {
            let made = http2::handshake(TokioExecutor::new(), TokioIo::new(self.connect())).await;
            let (mut sender, connection) = made.ok()?;
            let connection = tokio::spawn(connection);
            let request = Request::post(format!("http://localhost{SERVICE}{name}"))
                .header("content-type", "application/grpc")
                .body(Full::new(Bytes::copy_from_slice(body)));
            let answer = sender.send_request(request.ok()?).await.ok()?;
            let headers = answer.headers().clone();
            let collected = answer.into_body().collect().await.ok()?;
            connection.abort();
            let trailers = collected.trailers().cloned().unwrap_or_default();
            let text = |name| trailers.get(name).or_else(|| headers.get(name))?.to_str().ok();
            Some((
                text("grpc-status")?.parse().ok()?,
                text("grpc-message").unwrap_or_default().to_owned(),
            ))
        })
    }

    fn connect(&self) -> DuplexStream {
        const ROOM: usize = 1 << 20;
        let (client, server) = duplex(ROOM);
        let ending = watch::Sender::new(false).subscribe();
        // The sender is gone: nobody ends the server, and its connections end by themselves.
        tokio::spawn(answer_all(server, Arc::clone(&self.signer), ending));
        client
    }
}
