//! Asks a signer for its status.

use std::path::Path;

use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::calls::STATUS;
use crate::status::SignerStatus;
use messages::error::{Error, Exit};
use system::limits::service_account as limits;
use system::shortage;

/// The longest status, in bytes.
const LONGEST: usize = 1 << 20;

/// What the signer at this socket says of itself.
pub fn signer_status(socket: &Path) -> Result<SignerStatus, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asked = async { timeout(limits::STATUS, ask(socket)).await };
    let failed = |reason: String| {
        let text = format!("the signer at {} can't be asked: {reason}", socket.display());
        Error::new(Exit::Cluster, text).help(
            "start it, as its user or as root; name its socket with --socket if it is another one",
        )
    };
    match runtime.map_err(shortage)?.block_on(asked) {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(reason)) => Err(failed(reason)),
        Err(_) => Err(failed(format!("no answer within {} s", limits::STATUS.as_secs()))),
    }
}

async fn ask(socket: &Path) -> Result<SignerStatus, String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    let made = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = made.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let request = Request::get(STATUS).header(HOST, "localhost").body(Empty::<Bytes>::new());
    let request = request.map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| format!("its answer is no status: {error}"))
}
