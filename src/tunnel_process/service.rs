//! The tunnel process itself: accepts clients, and serves keys and clusters for as long as they are used.
//!
//! Each client has a thread that converses with it (`served_client`) and has its key opened (`admission`). The main thread
//! waits for clients, and closes what is used no longer (`served`). PKCS#11 libraries are in other processes.

use std::mem;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::chdir;

use super::served::Served;
use super::served_client::ServedClient;
use crate::control_socket::ControlSocket;
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use keyring::{KeyNumber, OpenKey, OpenKeys};
use messages::error::Error;
use system::background;
use system::locked;
use tunnel::{PAUSE_AFTER_FAILURE, TunnelObserver};

/// How often the process looks whether something has ended: programs, connections, token processes, times.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Runs the tunnel process, whose standard input is the control socket. Returns its exit code.
pub fn serve() -> u8 {
    background::leave_session();
    let _ = chdir("/");
    // There is nowhere to report this. The client notices that it gets no answer.
    let Ok(listener) = background::take_listener() else { return 2 };
    let service =
        Arc::new(Service { socket: ControlSocket::find().ok(), served: Mutex::default() });
    service.run(&listener);
    service.end();
    drop(listener);
    0
}

/// What the threads of the process share.
#[derive(Default)]
pub(super) struct Service {
    socket: Option<ControlSocket>,
    served: Mutex<Served>,
}

impl Service {
    /// What is served at present. Nobody waits for a person or a token while this is locked.
    pub(super) fn served(&self) -> MutexGuard<'_, Served> {
        locked(&self.served)
    }

    /// Accepts clients until there is nothing left to be kept. The first one has connected already.
    fn run(self: &Arc<Self>, listener: &UnixListener) {
        let Ok(termination) = background::on_termination() else { return };
        loop {
            let mut polled =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(&termination, PollFlags::IN)];
            let _ = poll(&mut polled, Some(&PAUSE));
            let [has_client, is_ended] = polled.map(|polled| !polled.revents().is_empty());
            if is_ended {
                return;
            }
            if has_client {
                match listener.accept() {
                    Ok((stream, _)) => self.take_client(stream),
                    // No descriptors are left. Without a pause, the loop would try again at once.
                    Err(_) => thread::sleep(PAUSE_AFTER_FAILURE),
                }
            }
            let mut served = self.served();
            served.tidy();
            if served.is_stopping {
                return;
            }
        }
    }

    /// Has a thread converse with the client, if it can be served.
    fn take_client(self: &Arc<Self>, stream: UnixStream) {
        let Some(client) = ServedClient::count(self) else { return };
        let thread = thread::Builder::new().name("client".to_owned());
        // If no thread can be started, the client is dropped, too.
        let _ = thread.spawn(move || drop(client.converse(stream)));
    }

    /// Frees the addresses and then the socket's name, so that the next process finds both free.
    fn end(&self) {
        let mut served = self.served();
        let tunnels = served.tunnels.take();
        let keys = mem::take(&mut served.keys);
        drop(served);
        drop(tunnels);
        drop(keys);
        if let Some(socket) = &self.socket {
            socket.remove();
        }
    }
}

/// Nothing is reported here: the clients themselves are told what becomes of a connection.
impl TunnelObserver for Service {}

impl OpenKeys for Service {
    fn open_in_time(&self, number: KeyNumber) -> Result<Arc<OpenKey>, Error> {
        let (process, _) = self.served().open_key(number)?;
        let opened = process.open_in_time(number)?;
        // Its certificate may have been renewed.
        if let Some(key) = self.served().keys.get_mut(&number)
            && key.open.is_some()
        {
            key.open = Some(Arc::clone(&opened));
        }
        Ok(opened)
    }

    fn sign(
        &self,
        number: KeyNumber,
        scheme: Scheme,
        digest: Vec<u8>,
    ) -> Result<VerifiedSignature, Error> {
        let (process, open) = self.served().open_key(number)?;
        process.sign(number, &open, scheme, digest)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lifetime::ServedKey;
    use super::*;

    #[test]
    fn who_comes_after_the_end_is_told_that_the_process_was_stopped() {
        let service = Service::default();
        let number = KeyNumber::default();
        service.served().keys.insert(number, ServedKey::default());
        assert_eq!(service.open_in_time(number).unwrap_err().exit_code(), 70);
        service.end();
        let error = service.open_in_time(number).unwrap_err();
        assert_eq!(error.exit_code(), 9, "{error}");
        assert!(error.to_string().contains("was stopped"), "{error}");
    }
}
