//! A client's conversation with the tunnel process, in a thread of its own.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::VERSION;
use super::admission::AdmittedKey;
use super::message::{ControlRequest, Conversation, Greeting, Registered, Registration, Reply};
use super::repeated::{KnownCall, Repetition};
use super::service::Service;
use crypto::scheme::Scheme;
use crypto::verify::VerifiedSignature;
use keyring::OpenKeys as _;
use system::limits;
use system::peer::{Peer, peer};

/// How many clients are served at once. Further connections are closed.
const CLIENTS: usize = 512;

/// A client that is counted until this is dropped, even if its thread panics.
pub(super) struct ServedClient(Arc<Service>);

impl Drop for ServedClient {
    fn drop(&mut self) {
        let mut served = self.0.served();
        served.clients -= 1;
        // This isn't left to the main loop: a client that asks for the status again and again would keep the process
        // running.
        served.tidy();
    }
}

impl ServedClient {
    /// Counts one more client; `None` if there are as many as are served at once.
    pub(super) fn count(service: &Arc<Service>) -> Option<Self> {
        let mut served = service.served();
        if served.clients >= CLIENTS {
            return None;
        }
        served.clients += 1;
        Some(Self(Arc::clone(service)))
    }

    /// Says that the process is there, takes the client's request and answers it.
    pub(super) fn converse(&self, stream: UnixStream) -> io::Result<()> {
        let peer = peer(&stream)?;
        if !peer.is_this_user() {
            return Ok(());
        }
        let mut conversation = Conversation::new(stream);
        conversation.be_patient(limits::CLIENT_REQUEST)?;
        conversation.send(&Reply::Here)?;
        let Greeting { version, process, request } =
            conversation.receive::<Greeting<Box<RawValue>>>()?;
        let request = match serde_json::from_str(request.get()) {
            Ok(request) => request,
            // A request of another version is for a process of that version, for which this one makes way.
            Err(_) if version != VERSION => ControlRequest::Stop,
            Err(error) => return Err(error.into()),
        };
        match request {
            ControlRequest::Status => {
                let status = self.0.served().status();
                conversation.send(&Reply::Status(status))
            }
            ControlRequest::Repeat(repetition) => {
                // As a registration, the full call reaches a process of its own version.
                let document =
                    Some(repetition).filter(|_| version == VERSION).and_then(|repetition| {
                        self.answer_again(&conversation, peer, process, &repetition)
                    });
                conversation.send(&Reply::Answered(document))
            }
            ControlRequest::Register(registration)
                if version == VERSION && self.0.served().can_serve(&registration) =>
            {
                self.register(conversation, peer, process, Arc::from(registration))
            }
            ControlRequest::Register(_) | ControlRequest::Stop => self.stop(conversation),
        }
    }

    /// Ends this process. The client may start one that can serve it.
    fn stop(&self, mut conversation: Conversation) -> io::Result<()> {
        self.0.served().is_stopping = true;
        conversation.send(&Reply::Gone)?;
        // The client waits for the end of this process.
        conversation.wait_for_end();
        Ok(())
    }

    /// Admits the client again for a call that was answered before; the answer. `None` if the call isn't known, or if
    /// anything about it is to be asked, opened or told: then it has to be made in full.
    fn answer_again(
        &self,
        conversation: &Conversation,
        peer: Peer,
        process: i32,
        repetition: &Repetition,
    ) -> Option<String> {
        let known = self.0.served().answerable(&repetition.digest)?;
        if !known.is_unchanged() {
            return None;
        }
        let caller = Some(repetition.caller);
        let registration = Registration { caller, ..Registration::clone(&known.registration) };
        let admitted = self.0.admit(conversation, peer, process, &registration).ok()?;
        let AdmittedKey { number, answer: Registered { client, warnings, .. } } = admitted;
        if !warnings.is_empty() {
            // The small program can't show them; the full call does.
            self.0.served().keep_warnings(number, warnings);
            return None;
        }
        client.map(|client| known.call.answer.document(client))
    }

    /// Opens the client's key and serves its clusters. Signs a digest, if the client has one.
    fn register(
        &self,
        mut conversation: Conversation,
        peer: Peer,
        process: i32,
        registration: Arc<Registration>,
    ) -> io::Result<()> {
        let AdmittedKey { number, answer } =
            match self.0.admit(&conversation, peer, process, &registration) {
                Ok(admitted) => admitted,
                Err(error) => return conversation.send(&Reply::Failed(error)),
            };
        if let Some(call) = registration.call.clone() {
            let registration = Arc::clone(&registration);
            self.0.served().calls.remember(KnownCall { call, registration, key: number });
        }
        conversation.send(&Reply::Registered(answer))?;
        if registration.signs {
            let (scheme, digest): (Scheme, Vec<u8>) = conversation.receive()?;
            let signature = self.0.sign(number, scheme, digest);
            conversation.send(&signature.map(VerifiedSignature::into_bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_client_whose_thread_panics_is_no_longer_counted() {
        let service = Arc::new(Service::default());
        let client = ServedClient::count(&service).unwrap();
        assert_eq!(service.served().clients, 1);
        let thread = thread::spawn(move || {
            let _client = client;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(thread.join().is_err());
        assert_eq!(service.served().clients, 0);
    }
}
