//! How a client gets its key: whether it may, whether it has to log in, in which token process the key is opened, and how
//! long it stays open.
//!
//! [`Service::admit`] admits a client that registers: `begin` has a token process open the key, `opened` waits for that
//! without holding a lock, and `finish` keeps the key for as long as the client wants it.

use std::io;
use std::mem;
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

/// A client that registers, and what it wants.
#[derive(Clone, Copy)]
struct Registrant<'a> {
    conversation: &'a Conversation,
    peer: Peer,
    registration: &'a Registration,
    /// The configuration of the key that it wants.
    config: &'a Config,
}

impl Registrant<'_> {
    /// The task for a token process. Unless the client `is_admitted`, it has to log in itself.
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
    /// The certificate for the client's local connections, if clusters are served.
    certificate: Option<Result<ClientCertificate, Error>>,
}

/// Whether a token process was asked for a key.
enum Asked {
    /// The process was asked. This is the conversation in which it will answer, or why it couldn't be reached.
    Sent(io::Result<Conversation>),
    /// The process wasn't asked, because one of the client's clusters can't be served.
    NotServed(Error),
}

/// A key that is open for a client, and the answer to that client.
pub(super) struct AdmittedKey {
    pub(super) number: KeyNumber,
    pub(super) answer: Registered,
}

impl Service {
    /// Opens the key for the client at the other end of the conversation, which may take as long as a person takes, and
    /// serves its clusters. `process` is what the client itself has given as its process number.
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

    /// Has a token process open the key for the client, and serves its clusters. Until [`Service::finish`], the client
    /// counts as waiting for the key, even if one of its clusters can't be served.
    fn begin(self: &Arc<Self>, client: &Registrant<'_>) -> Result<AwaitedKey, Error> {
        let Registrant { registration, config, conversation, .. } = *client;
        let mut served = self.served();
        // First: the token process starts while the tunnels and the client's certificate are made.
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
        // Sent while `served` is locked, so that tasks reach the process in the order in which their clients register: a
        // client that isn't admitted dismisses those before it, and not those after it.
        let asked = match clusters_served {
            Ok(()) => {
                let task = client.open_task(is_admitted);
                Asked::Sent(token.process.send(number, &task, Some(conversation)))
            }
            Err(error) => Asked::NotServed(error),
        };
        Ok(AwaitedKey { token, asked, waiting, certificate })
    }

    /// Waits for the key that the token process was asked to open. If it doesn't find the token or the key, a new process
    /// of the library is asked.
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
        // Libraries that have run for a while may not notice what was inserted or written since.
        let process = new_process(config, registration.environment.clone())?;
        let asked = process.send(number, &client.open_task(false), Some(conversation));
        let opened = process.opened(asked, conversation);
        let mut served = self.served();
        let (key, _) = served.used_key(number)?;
        // If the new process has no success either, the old one is kept: it has the PIN for when the token is back.
        if opened.is_ok() || key.open.is_none() {
            key.signs_digests = false;
            if let Some(former) = key.process.replace(process) {
                former.close(number);
            }
        }
        opened
    }

    /// Keeps the key that was opened for as long as the client wants it, and returns the answer to the client. If the key
    /// couldn't be opened, it is closed, unless somebody else has it, waits for it or is connected with it.
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
        drop(waiting);
        let opened = opened.inspect_err(|_| served.tidy())?;
        let (key, usage) = served.used_key(number)?;
        let is_new = key.open.is_none();
        let mut warnings = mem::take(&mut key.untold_warnings);
        warnings.extend(opened.take_warnings());
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

/// Whether a library that is initialised anew may find what was missing or lost. The old process doesn't do that, since a
/// library isn't initialised again beside a PIN.
fn may_be_there_by_now(error: &Error) -> bool {
    let is_missing = error.exits_with(Exit::Token) || error.exits_with(Exit::Object);
    is_missing && !error.is(&BUSY) || error.is(&kind::CALL_FAILED)
}

/// Watches the process that the plugin names as its caller. An error if it doesn't run the plugin.
fn caller_of(plugin: Peer, number: i32) -> Result<WatchedProcess, Error> {
    let process =
        WatchedProcess::new(number).map_err(|reason| caller_error(&reason.to_string()))?;
    if number == plugin.process || is_caller(number, plugin.process) {
        Ok(process)
    } else {
        Err(caller_error("it doesn't run the plugin"))
    }
}

/// The error for a caller that can't be watched: it has ended, belongs to another user, or runs in another container.
pub fn caller_error(reason: &str) -> Error {
    tunnel_error(
        format!("the program that asked for the credential can't be watched: {reason}"),
        "run the command again, outside of the container if it is in one",
    )
}
