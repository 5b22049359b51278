//! `credential --as`: a short-lived credential that comes from the token's key, for clients that can't use a tunnel.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use clap::builder::NonEmptyStringValueParser;
use p256::SecretKey;
use p256::ecdsa::signature::hazmat::PrehashSigner as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{EncodePrivateKey as _, LineEnding};
use serde_json::{Value, json};

use super::{CredentialArguments, version};
use crate::cli::issuance::{Issuance, ShortLived, applicant};
use crate::cli::key::choice::{NamedKey, WholeSource};
use crate::cli::key::options::{
    KeyOptions, KeySource, SelectedContext, standard_input_is_the_clients,
};
use crate::cli::session::{CommandSession, StartingSession, write_file};
use crate::enrollment::{Applicant, outlasts, remark, sign_request};
use cluster_api::signing_request::{Progress, SHORTEST, SigningRequest};
use cluster_api::{ServiceAccount, ServiceAccountToken, TokenConnection};
use config::{Config, PinSource, duration, key_selection};
use crypto::certificate::{Certificate, Curve, PublicKey, minute, rfc_3339};
use crypto::jose;
use crypto::scheme::Scheme;
use crypto::verify::verify;
use kubeconfig::exec_credential::{ExecProof, ExecRequest, exec_answer};
use kubeconfig::{Cluster, LocalCluster, NamedCluster, tunnelled};
use messages::error::{Error, Exit};
use messages::printable::hex;
use messages::report;
use pin_entry::Sources;
use system::clock::unix_time;
use token::KeyPurpose;
use tunnel::TunnelTarget;

/// How long before the end of a credential a client has to ask again, in seconds, so that a request that was begun is
/// still answered.
const MARGIN: i64 = 30;

/// The usual life of a JSON Web Token, in seconds.
const LIFETIME: u64 = 5 * 60;

/// The longest life of a credential that nobody can take back, in seconds.
const LONGEST: u64 = 24 * 60 * 60;

/// The audience of a JSON Web Token without `--audience`.
const AUDIENCE: &str = "kubernetes";

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(super) enum OutputForm {
    /// An ExecCredential, for clients that run this command
    #[default]
    Exec,
    /// A whole kubeconfig, for another machine
    Kubeconfig,
    /// The token alone, or the certificate and its key in PEM
    Raw,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Short-lived credentials")]
pub(super) struct ShortLivedOptions {
    /// certificate (for a new key), jwt (signed with the key), or token (of a service account)
    #[arg(long = "as", value_name = "WHAT", hide_possible_values = true)]
    pub(super) kind: Option<ShortLived>,
    /// exec (an ExecCredential), kubeconfig (for another machine), or raw (only the credential)
    #[arg(
        long,
        value_name = "FORM",
        default_value = "exec",
        requires = "kind",
        hide_possible_values = true
    )]
    pub(super) output: OutputForm,
    /// Write it to this file, which only you can read
    #[arg(long, value_name = "FILE", requires = "kind")]
    pub(super) out: Option<PathBuf>,
    /// How long it is valid, such as 5m
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "kind")]
    pub(super) duration: Option<Duration>,
    /// Whom a token is meant for; may be given several times
    #[arg(long, value_name = "NAME", requires = "kind", value_parser = NonEmptyStringValueParser::new())]
    #[arg(hide_short_help = true)]
    pub(super) audience: Vec<String>,
    /// certificate: how long to wait until it is approved and signed
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, requires = "kind")]
    #[arg(hide_short_help = true)]
    pub(super) wait: Duration,
    /// jwt: the issuer's URL in the API server's AuthenticationConfiguration
    #[arg(long, value_name = "URL", value_parser = jose::issuer, requires = "kind", required_if_eq("kind", "jwt"))]
    issuer: Option<String>,
    /// jwt: the user that it is about [default: the certificate's]
    #[arg(long, value_name = "NAME", requires = "kind", value_parser = NonEmptyStringValueParser::new())]
    #[arg(hide_short_help = true)]
    subject: Option<String>,
    /// token: the service account
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "kind", required_if_eq("kind", "token"))]
    service_account: Option<ServiceAccount>,
}

/// A credential that authenticates a client without the token's key.
pub(super) struct IssuedCredential {
    pub(super) proof: ExecProof,
    /// When the credential expires, in seconds since 1970.
    pub(super) ends: i64,
    /// The name of the user, for a kubeconfig.
    pub(super) user: String,
}

/// Makes a short-lived credential, and prints it or writes it into a file.
pub(super) fn hand_out(
    kind: ShortLived,
    arguments: &CredentialArguments,
    request: Option<ExecRequest>,
    start: StartingSession<'_>,
) -> Result<(), Error> {
    let options = &arguments.short_lived;
    let WholeSource { source, variables, session } =
        key_source(&arguments.key, request.as_ref(), start)?;
    let KeySource { mut configuration, context, .. } = source;
    let selection = key_selection(&configuration);
    let mut config = Config::from_map(&mut configuration)?;
    let pin_source = std::mem::take(&mut config.pin);
    if matches!(pin_source, PinSource::StandardInput) {
        return Err(standard_input_is_the_clients());
    }
    // This comes before a PIN is asked for.
    check_duration(kind, options.duration)?;
    let needs_cluster = kind != ShortLived::Jwt || options.output == OutputForm::Kubeconfig;
    let target = needs_cluster.then(|| target(arguments, request.as_ref(), context)).transpose()?;
    let pins = Sources::new(pin_source, &variables);
    drop(variables);
    let made = match &target {
        Some(target) if kind != ShortLived::Jwt => {
            from_cluster(kind, options, selection, pins, target.clone(), session)?
        }
        _ => jwt(options, &config, pins, session)?,
    };
    made.check_end()?;
    let version = version(request.as_ref(), &arguments.key);
    put_out(&text(&made, options.output, version, target.as_ref()), options, session)
}

/// The key that the credential is for. By hand, the only key there is needs no name; a client's plugin guesses none.
fn key_source<'a>(
    options: &KeyOptions,
    request: Option<&ExecRequest>,
    start: StartingSession<'a>,
) -> Result<WholeSource<'a>, Error> {
    if request.is_none() {
        return options.whole_source(true, start);
    }
    let source = options.source()?;
    let (session, variables) = start.take_pin_variable(source.configuration.clone());
    Ok(WholeSource { source, variables, session })
}

/// Prints the credential, or writes it into the file that the options name.
fn put_out(
    text: &str,
    options: &ShortLivedOptions,
    session: &mut CommandSession,
) -> Result<(), Error> {
    match &options.out {
        Some(path) => write_file(path, text, 0o600),
        None => session.output.print_document(text),
    }
}

/// Refuses a long life for a credential that nobody can take back.
fn check_duration(kind: ShortLived, duration: Option<Duration>) -> Result<(), Error> {
    let what = match kind {
        ShortLived::Certificate => "certificate",
        ShortLived::Jwt => "JSON Web Token",
        // Such a token ends with its account.
        ShortLived::Token => return Ok(()),
    };
    if duration.is_none_or(|duration| duration.as_secs() <= LONGEST) {
        return Ok(());
    }
    let text = format!("a {what} can't be revoked, so it may be valid for a day at most");
    Err(Error::new(Exit::Request, text).help("leave --duration out, or give at most 24h"))
}

impl IssuedCredential {
    /// Fails if the credential has expired already: clients would ask again at once, for ever.
    fn check_end(&self) -> Result<(), Error> {
        if self.ends > unix_time() {
            return Ok(());
        }
        let text = format!("the credential has expired already, at {}", rfc_3339(self.ends));
        Err(Error::new(Exit::Cluster, text).help("set the clock of this machine, or the server's"))
    }
}

/// Has the API server make the credential, for the user of the key's certificate.
fn from_cluster(
    kind: ShortLived,
    options: &ShortLivedOptions,
    selection: Vec<(String, String)>,
    mut pins: Sources,
    target: TunnelTarget,
    session: &mut CommandSession,
) -> Result<IssuedCredential, Error> {
    // An API server makes none for less time.
    let shortest = SHORTEST.into();
    let life = options.duration.map_or(shortest, |duration| duration.as_secs());
    if life < shortest {
        let text = "an API server issues nothing for less than 10 minutes";
        return Err(
            Error::new(Exit::Request, text).help("leave --duration out, or give at least 10m")
        );
    }
    let api = session.connect(target, selection, &mut pins)?;
    for warning in session.own_key().iter().flat_map(|key| key.open.take_warnings()) {
        report::warning(&warning);
    }
    let account = match &options.service_account {
        Some(account) if kind == ShortLived::Token => account,
        _ => return certificate(&api, life, options.wait),
    };
    let ServiceAccountToken { token, ends } =
        api.request_token(account, life, &options.audience)?;
    Ok(IssuedCredential { proof: ExecProof::Token(token), ends, user: account.to_string() })
}

/// Gets a certificate for a key that is made here and now. The request is made with the token's key, for exactly the
/// user of this connection, and somebody else has to approve it. `life` is in seconds.
fn certificate(
    api: &TokenConnection,
    life: u64,
    limit: Duration,
) -> Result<IssuedCredential, Error> {
    let user = api.whoami()?;
    let applicant = applicant(&user)?;
    let new = NewKey::generate()?;
    let name = format!("credential-{}", random_id()?);
    let csr = new.request(&applicant)?;
    let request = SigningRequest::create(api, &name, &csr, u32::try_from(life).ok())?;
    let request = wait_for_approval(api, &request, limit)?;
    let issuance = Issuance {
        api,
        applicant: &applicant,
        public_key: &new.public,
        duration: None,
        renewed: None,
        attestation: None,
    };
    let Some(issued) = issuance.issued(&request)? else {
        // The request's key ends with this process. If the user may not remove the request, the cluster does so later.
        let _ = request.remove(api);
        let limit = format!("{} s", limit.as_secs());
        return Err(request.late(
            &limit,
            "have another person approve the next one while this waits (docs/approve.md), with more time: --wait 5m",
        ));
    };
    check_life(&issued.certificate, life, &name)?;
    let key = new.secret.to_pkcs8_pem(LineEnding::LF).map_err(Error::internal)?.to_string();
    Ok(IssuedCredential {
        // The PEM is made anew, without any text between and behind the certificates.
        proof: ExecProof::Certificate { certificate: issued.pem()?, key },
        ends: issued.certificate.validity.not_after,
        user: user.name,
    })
}

/// Waits for the request's approval and the certificate, and says what is being waited for.
fn wait_for_approval(
    api: &TokenConnection,
    request: &SigningRequest,
    limit: Duration,
) -> Result<SigningRequest, Error> {
    let name = &request.metadata.name;
    report::note(&format!("waiting for the CertificateSigningRequest {name} to be approved"));
    request.wait(api, limit, &mut |progress| {
        if matches!(progress, Progress::Approved) {
            report::note(&format!(
                "the request {name} is approved; waiting for the cluster's signer"
            ));
        }
    })
}

/// Fails if the certificate lives much longer than these seconds, which the request of this name asked for.
fn check_life(certificate: &Certificate, life: u64, name: &str) -> Result<(), Error> {
    let now = unix_time();
    if outlasts(certificate, life, now) {
        let end = minute(certificate.validity.not_after);
        let text = format!(
            "the certificate of the request {name} lives much longer than was asked for, until {end}, and nobody could \
             take it back: its key was thrown away"
        );
        return Err(Error::new(Exit::Cluster, text).help(
            "the cluster's signer gives times of its own: if one is a day at most, ask for that with --duration; \
             otherwise use --as token, or the tunnel (`run`, `credential`)",
        ));
    }
    if let Some(remark) = remark(certificate, life, now) {
        report::warning(&format!("the certificate of {}: {remark}", certificate.subject));
    }
    Ok(())
}

/// A key in memory, which is wiped with it.
struct NewKey {
    secret: SecretKey,
    public: PublicKey,
}

impl NewKey {
    fn generate() -> Result<Self, Error> {
        // The heap is wiped when it is freed.
        let mut random = vec![0; 32];
        getrandom::fill(&mut random).map_err(Error::internal)?;
        // Nearly every number of 32 bytes is a key.
        let secret = SecretKey::from_slice(&random).map_err(Error::internal)?;
        let point = SigningKey::from(&secret).verifying_key().to_sec1_point(false);
        let public = PublicKey::Ecdsa { curve: Curve::P256, point: point.as_bytes().to_vec() };
        Ok(Self { secret, public })
    }

    /// Makes a request for a certificate of this applicant, signed with the key, in PEM.
    fn request(&self, applicant: &Applicant) -> Result<String, Error> {
        let schemes = Scheme::of_tls(&self.public);
        let sign = |scheme: Scheme, digest: &[u8]| {
            let signature: Result<Signature, _> =
                SigningKey::from(&self.secret).sign_prehash(digest);
            let der = signature.ok().map(|signature| signature.to_der().as_bytes().to_vec());
            der.and_then(|der| verify(&self.public, &scheme, digest, der))
                .ok_or_else(|| Error::internal("a signature of a key that was just made"))
        };
        sign_request(KeyPurpose::Signing, None, applicant, &self.public, &schemes, sign)
    }
}

/// Makes a JSON Web Token that the key signs.
fn jwt(
    options: &ShortLivedOptions,
    config: &Config,
    pins: Sources,
    session: &mut CommandSession,
) -> Result<IssuedCredential, Error> {
    let library = session.open(config)?;
    let mut pins = library.lock.asking_unlocked(&config.library, pins);
    let mut token = library.token(&config.token)?;
    let NamedKey { key, user } = NamedKey::find(&mut token, config, Some(&mut pins))?;
    let user = options.subject.clone().or(user).ok_or_else(|| {
        Error::new(
            Exit::Request,
            "nothing names the token's subject: the key has no certificate with a CN",
        )
        .help("name its subject: --subject NAME")
    })?;
    let life = options.duration.map_or(LIFETIME, |duration| duration.as_secs());
    let begins = unix_time();
    let ends = begins.saturating_add(i64::try_from(life).unwrap_or(i64::MAX));
    let claims = claims(options, &user, begins, ends)?;
    let public_key = key.public_key.clone();
    let signed = jose::token(&public_key, &claims, |scheme, digest| {
        token.check_mechanism(&scheme)?;
        let key = token.key(key, &mut pins)?;
        token.sign(&key, scheme, digest, &mut pins)
    })?;
    Ok(IssuedCredential { proof: ExecProof::Token(signed), ends, user })
}

/// The claims of a JSON Web Token about this user, with its times in seconds since 1970.
fn claims(options: &ShortLivedOptions, user: &str, begins: i64, ends: i64) -> Result<Value, Error> {
    Ok(json!({
        "iss": options.issuer,
        // Fewer servers understand a list with one entry.
        "aud": match options.audience.as_slice() {
            [] => json!(AUDIENCE),
            [one] => json!(one),
            several => json!(several),
        },
        "sub": user,
        "iat": begins,
        "nbf": begins,
        "exp": ends,
        // The API server's audit log shows this as the credential's id.
        "jti": random_id()?,
    }))
}

/// A random id, which no other credential has had.
fn random_id() -> Result<String, Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Error::internal(error.to_string()))?;
    Ok(hex(&random))
}

/// The cluster that the credential is for: the client's, the context's with the key, or the current context's.
fn target(
    arguments: &CredentialArguments,
    request: Option<&ExecRequest>,
    of_key: Option<SelectedContext>,
) -> Result<TunnelTarget, Error> {
    if let Some(entry) = request.and_then(|request| request.cluster.as_ref()) {
        let LocalCluster { cluster, extension } = LocalCluster::requested(entry)?;
        if extension.is_null() {
            return Ok(TunnelTarget::new(cluster.server.clone(), cluster));
        }
        let NamedCluster { name, cluster } = tunnelled(&extension)?;
        return Ok(TunnelTarget::new(name, cluster));
    }
    arguments.key.target(of_key)
}

/// The credential in this form; `target` is needed for a kubeconfig.
fn text(
    credential: &IssuedCredential,
    form: OutputForm,
    version: &str,
    target: Option<&TunnelTarget>,
) -> String {
    match (form, target) {
        (OutputForm::Kubeconfig, Some(target)) => kubeconfig(credential, target),
        (OutputForm::Exec | OutputForm::Kubeconfig, _) => {
            // A client asks again at this moment, and not before.
            let margin = MARGIN.min(credential.ends.saturating_sub(unix_time()) / 5);
            let renewal = rfc_3339(credential.ends.saturating_sub(margin));
            exec_answer(version, &credential.proof, &renewal)
        }
        (OutputForm::Raw, _) => match &credential.proof {
            ExecProof::Certificate { certificate, key } => {
                format!("{}\n{}\n", certificate.trim_end(), key.trim_end())
            }
            ExecProof::Token(token) => format!("{token}\n"),
        },
    }
}

/// A kubeconfig with the credential for this cluster. It is JSON, which YAML includes, apart from the comment.
fn kubeconfig(credential: &IssuedCredential, target: &TunnelTarget) -> String {
    let Cluster { server, authority, tls_server_name, insecure, proxy_url } = &target.cluster;
    let mut cluster = json!({
        "server": server,
        "certificate-authority-data": authority.as_ref().map(|pem| STANDARD.encode(pem)),
        "tls-server-name": tls_server_name,
        "insecure-skip-tls-verify": insecure.then_some(true),
        "proxy-url": proxy_url,
    });
    if let Some(members) = cluster.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    let user = match &credential.proof {
        ExecProof::Certificate { certificate, key } => json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        }),
        ExecProof::Token(token) => json!({ "token": token }),
    };
    let name = &target.name;
    let who = &credential.user;
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": who, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": who}}],
        "current-context": name,
    });
    let ends = rfc_3339(credential.ends);
    format!("# Expires at {ends}.\n{config:#}\n")
}
