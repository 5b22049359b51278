//! How a client gets its key: who may, whether it has to log in, in which token process, and for how long.
//!
//! A client that registers comes through [`Service::admit`]: `begin` has a token process open the key, `opened` waits for
//! that without a lock, and `finish` keeps what was opened.

use std::io;
use std::sync::Arc;

use super::lifetime::WaitingClient;
use super::message::{Conversation, Registered, Registration, config_of};
use super::served::{KeyInProcess, new_process};
use super::service::Service;
use super::token_process::Task;
use config::{Config, Keep};
use files::lock::BUSY;
use keyring::{KeyNumber, OpenKey};
use messages::error::{Error, Exit};
use system::clock::time_since_boot;
use system::peer::Peer;
use system::process::{WatchedProcess, is_caller};
use token::kind;
use tunnel::{ClientCertificate, tunnel_error};

/// Who registers, with what it wants.
#[derive(Clone, Copy)]
struct Registrant<'a> {
    conversation: &'a Conversation,
    peer: Peer,
    registration: &'a Registration,
    /// Of the key.
    config: &'a Config,
}

impl Registrant<'_> {
    /// What a token process is asked for. Unless the client `is_admitted`, it logs in itself.
    fn open_task(&self, is_admitted: bool) -> Task {
        Task::Open {
            key: self.config.selection(),
            signs: self.registration.signs,
            is_admitted,
            pin_origin: self.registration.pin_origin.clone(),
        }
    }
}

/// A key that a client waits for.
struct AwaitedKey {
    token: KeyInProcess,
    asked: Asked,
    waiting: WaitingClient,
    /// For the client's local connections, if clusters are served.
    certificate: Option<Result<ClientCertificate, Error>>,
}

/// Whether a token process was asked for a key.
enum Asked {
    /// It was: the conversation in which it answers, if it could be reached.
    Sent(io::Result<Conversation>),
    /// It was not, since one of the client's clusters can't be served.
    NotServed(Error),
}

/// A key that is open for a client, and the answer to it.
pub(super) struct AdmittedKey {
    pub(super) number: KeyNumber,
    pub(super) answer: Registered,
}

impl Service {
    /// Opens the key for the client at the other end of the conversation, as long as a person takes, and serves its
    /// clusters. `process` is the client's number as it knows it.
    pub(super) fn admit(
        self: &Arc<Self>,
        conversation: &Conversation,
        peer: Peer,
        process: i32,
        registration: &Registration,
    ) -> Result<AdmittedKey, Error> {
        let config = &config_of(&registration.configuration)?;
        if peer.process != process {
            return Err(caller_error("it is in another container"));
        }
        let caller = registration.caller.map(|number| caller_of(peer, number)).transpose()?;
        let client = Registrant { conversation, peer, registration, config };
        let AwaitedKey { token, asked, waiting, certificate } = self.begin(&client)?;
        let opened = match asked {
            Asked::Sent(sent) => self.opened(&token, sent, &client),
            Asked::NotServed(error) => Err(error),
        };
        let answer = self.finish(token.number, opened, waiting, certificate, caller, &client)?;
        Ok(AdmittedKey { number: token.number, answer })
    }

    /// Has a token process open the key for the client, and serves its clusters. The client counts as one that waits for the
    /// key until [`Service::finish`], also if one of the clusters can't be served.
    fn begin(self: &Arc<Self>, client: &Registrant<'_>) -> Result<AwaitedKey, Error> {
        let Registrant { registration, config, conversation, .. } = *client;
        let mut served = self.served();
        // Its process starts while the tunnels and the client's certificate are made.
        let token = served.key_in_process(
            &registration.configuration,
            config,
            &registration.environment,
        )?;
        let number = token.number;
        let mut clusters = registration.clusters.iter();
        let clusters_served = clusters.try_for_each(|cluster| served.serve_cluster(cluster, self));
        let (key, usage) = served.used_key(number)?;
        let is_admitted = key.admits_clients(usage);
        key.signs_digests &= is_admitted;
        let waiting = key.waiting.add();
        if let Some(tunnels) = &served.tunnels
            && !is_admitted
        {
            tunnels.forget_sessions(number);
        }
        let certificate =
            served.tunnels.as_ref().map(|tunnels| tunnels.clients.certificate(number));
        // Before another one registers: who isn't admitted dismisses those before, and not those after.
        let asked = match clusters_served {
            Ok(()) => {
                let task = client.open_task(is_admitted);
                Asked::Sent(token.process.send(number, &task, Some(conversation)))
            }
            Err(error) => Asked::NotServed(error),
        };
        Ok(AwaitedKey { token, asked, waiting, certificate })
    }

    /// The key that the token process has been asked to open; where it finds none, as a new process of the library does.
    fn opened(
        &self,
        token: &KeyInProcess,
        asked: io::Result<Conversation>,
        client: &Registrant<'_>,
    ) -> Result<OpenKey, Error> {
        let Registrant { registration, config, conversation, .. } = *client;
        let number = token.number;
        let opened = token.process.opened(asked, conversation);
        if token.is_new_process || !opened.as_ref().is_err_and(may_be_there_by_now) {
            return opened;
        }
        // Libraries that have run for a while don't know what was put in or written since.
        let process = new_process(config, registration.environment.clone())?;
        let asked = process.send(number, &client.open_task(false), Some(conversation));
        let opened = process.opened(asked, conversation);
        let mut served = self.served();
        let (key, _) = served.used_key(number)?;
        // The one before goes on where the new one is no better: it has the PIN for when the token is back.
        if opened.is_ok() || key.open.is_none() {
            key.signs_digests = false;
            key.process = Some(process);
        }
        opened
    }

    /// Keeps the key that was opened for as long as the client wants it, or closes it if it couldn't be opened and nobody
    /// else has it or waits for it; the answer to the client.
    fn finish(
        &self,
        number: KeyNumber,
        opened: Result<OpenKey, Error>,
        waiting: WaitingClient,
        certificate: Option<Result<ClientCertificate, Error>>,
        caller: Option<WatchedProcess>,
        client: &Registrant<'_>,
    ) -> Result<Registered, Error> {
        let Registrant { registration: Registration { keep, kubeconfig, signs, .. }, peer, .. } =
            *client;
        let mut served = self.served();
        let (key, usage) = served.used_key(number)?;
        drop(waiting);
        if opened.is_err() && key.waiting.is_empty() && key.open.is_none() {
            key.close(number);
        }
        let opened = opened?;
        let is_new = key.open.is_none();
        let warnings = opened.take_warnings();
        let token_certificate = opened.chain.first().cloned().unwrap_or_default();
        key.open = Some(Arc::new(opened));
        key.signs_digests |= signs;
        key.last_use = time_since_boot();
        if let (Some(caller), Keep::Command | Keep::Terminal) = (caller, keep) {
            let awaits_client = caller.number() != peer.process;
            key.add_caller(caller, kubeconfig, usage, awaits_client);
        }
        key.keep(*keep, peer.process, kubeconfig);
        let certificate = certificate.transpose()?;
        Ok(Registered { client: certificate, token_certificate, is_new, warnings })
    }
}

/// Whether a library that is initialised now may find what was missing or lost. One that has a PIN beside it isn't
/// initialised again.
fn may_be_there_by_now(error: &Error) -> bool {
    let is_missing = error.exits_with(Exit::Token) || error.exits_with(Exit::Object);
    is_missing && !error.is(&BUSY) || error.is(&kind::CALL_FAILED)
}

/// The process that the plugin names as its client.
fn caller_of(plugin: Peer, number: i32) -> Result<WatchedProcess, Error> {
    let process =
        WatchedProcess::new(number).map_err(|reason| caller_error(&reason.to_string()))?;
    if number == plugin.process || is_caller(number, plugin.process) {
        Ok(process)
    } else {
        Err(caller_error("it doesn't run the plugin"))
    }
}

/// The program that ran the plugin has ended meanwhile, belongs to another user, or runs in another container.
pub fn caller_error(reason: &str) -> Error {
    tunnel_error(
        format!("the program that asked for the credential can't be watched: {reason}"),
        "run the command again, outside of the container if it is in one",
    )
}
