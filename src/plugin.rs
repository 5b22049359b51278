//! The external signer: takes one request from the environment, and writes one answer to standard output.

use std::ffi::OsString;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use config::pin::PinProvider;
use config::{Config, Keep, PinSource, key_selection};
use crypto::certificate::{Certificate, of_subject};
use crypto::scheme::requested;
use crypto::verify::{VerifiedSignature, verify};
use files::notice;
use keyring::library::{self, Library};
use messages::error::Error;
use messages::report;
use pin_entry::{self, Sources};
use protocol::{API_VERSION, Operation, Request, SignRequest, Spelling, no_request};
use system::clock::unix_time;
use system::environment::{SingleThreaded, TakenVariables};
use system::limits;
use system::output::{StandardOutput, answer_lost};
use token::{Callers, Identity, Token, invalid_signature};
use tunnel_process::{self, Registration};

/// Answers the request, or reports why it can't be answered. Returns the exit code.
pub fn run(request: OsString, alone: SingleThreaded) -> u8 {
    // The library is finalised after the answer is out, so that one that hangs or crashes then can't spoil it.
    let mut library = None;
    let mut pins = None;
    let code = match answer(request, alone, &mut pins, &mut library) {
        Ok(()) => 0,
        Err(error) => {
            let code = report::error(&error);
            if let Some(library) = &library {
                library.lock.release();
            }
            pin_entry::failed(&error);
            code
        }
    };
    // No PIN outlives the answer: a library may hang or crash at its end.
    drop(pins);
    if let Some(library) = library {
        library.module.finalize(code);
    }
    code
}

/// Answers the request. What it opens is left to the caller, who closes it once the answer is out.
fn answer(
    request: OsString,
    alone: SingleThreaded,
    pins: &mut Option<Sources>,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let client = StandardOutput::set_aside()?;
    let text = request.into_string().map_err(|_| no_request("valid UTF-8"))?;
    let mut request = Request::decode(&text)?;
    drop(text);
    let selection = request.configuration.value("keep").is_some();
    let selection = selection.then(|| key_selection(&request.configuration));
    let mut config = Config::from_map(&mut request.configuration)?;
    let pin_source = std::mem::take(&mut config.pin);
    let source = SourceTraits::of(&pin_source);
    let variables = TakenVariables::take(pin_source.variable(), alone);
    let pins = pins.insert(Sources::new(pin_source, &variables));
    drop(variables);
    if let (Some(key), Some(keep @ (Keep::Terminal | Keep::For(_))), Operation::Sign(sign)) =
        (selection, config.keep, &request.operation)
    {
        let registration =
            Registration { configuration: key, keep, signs: true, ..Registration::default() };
        let signature = kept_signature(registration, sign, pins, source)?;
        return Response::Signature(&signature).send(request.spelling, client);
    }
    let init_args = config.init_args.as_deref();
    let library =
        opened.insert(library::open(&config.library, init_args, Callers::OneThread, limits::LOCK)?);
    answer_by_token(&request, client, &config, source, library, pins)
}

/// Answers the request with a certificate or a signature of the token that it names.
fn answer_by_token(
    request: &Request,
    client: StandardOutput,
    config: &Config,
    source: SourceTraits,
    library: &Library,
    pins: &mut Sources,
) -> Result<(), Error> {
    let mut token = library.token(&config.token)?;
    let pins = &mut library.lock.asking_unlocked(&config.library, pins);
    let identity = token.identity(config, Some(pins))?;
    match &request.operation {
        Operation::Certificate => {
            let certificate = &identity.certificate;
            for concern in certificate.concerns(unix_time()) {
                report::warning(&of_subject(&certificate.subject, concern));
            }
            Response::Certificate(certificate.der()).send(request.spelling, client)
        }
        Operation::Sign(sign) => {
            let signature = signature(&mut token, identity, sign, source, pins)?;
            Response::Signature(&signature).send(request.spelling, client)
        }
    }
}

/// The properties of a PIN source of which the person who has chosen it is warned.
#[derive(Clone, Copy)]
struct SourceTraits {
    asks_a_person: bool,
    is_in_configuration: bool,
}

impl SourceTraits {
    fn of(source: &PinSource) -> Self {
        Self {
            asks_a_person: matches!(source, PinSource::Askpass | PinSource::Prompt),
            is_in_configuration: matches!(source, PinSource::Configuration(_)),
        }
    }
}

/// Signs with the key of this certificate. Warns first about what should not stay as it is.
fn signature(
    token: &mut Token,
    identity: Identity,
    sign: &SignRequest,
    source: SourceTraits,
    pins: &mut dyn PinProvider,
) -> Result<VerifiedSignature, Error> {
    let certificate = &identity.certificate;
    // Before a PIN is sent.
    certificate.check_end(unix_time())?;
    if source.is_in_configuration {
        // Not each time: a client has a signature made for each connection.
        let notice = format!("stored PIN of token {}", token.name());
        if notice::is_due(&notice, limits::STORED_PIN_NOTICE) {
            warn_of_stored_pin();
        }
    }
    // Only if a person is asked for the PIN, who can renew the certificate; a script can't.
    if source.asks_a_person
        && let Some(warning) = certificate.renewal_warning(unix_time())
    {
        report::warning(&warning);
    }
    let scheme = requested(&sign.options, certificate.public_key())?;
    token.check_mechanism(&scheme)?;
    let key = token.key(identity.key, pins)?;
    token.sign(&key, scheme, &sign.digest, pins)
}

/// Signs with a key that stays open in the tunnel process, and verifies the signature here.
#[cold]
fn kept_signature(
    registration: Registration,
    sign: &SignRequest,
    pins: &mut Sources,
    source: SourceTraits,
) -> Result<VerifiedSignature, Error> {
    let (key, conversation) = tunnel_process::register(registration, pins)?;
    for warning in &key.warnings {
        report::warning(warning);
    }
    if source.is_in_configuration && key.is_new {
        warn_of_stored_pin();
    }
    let certificate = Certificate::from_der(&key.token_certificate, "the tunnel process")?;
    let public_key = certificate.public_key();
    let scheme = requested(&sign.options, public_key)?;
    let signature = tunnel_process::sign(conversation, scheme, &sign.digest)?;
    let signature = verify(public_key, &scheme, &sign.digest, signature);
    signature.ok_or_else(|| invalid_signature(&certificate.subject, &scheme))
}

fn warn_of_stored_pin() {
    report::warning(
        "the PIN stands in the kubeconfig, where every program of yours can read it; set pinSource",
    );
}

/// The answer to a client's request. A signature can leave only as a [`VerifiedSignature`].
pub enum Response<'a> {
    /// The DER of one X.509 certificate; the protocol has no place for intermediates.
    Certificate(&'a [u8]),
    /// Encoded as in TLS: for ECDSA the DER of `SEQUENCE { r, s }`.
    Signature(&'a VerifiedSignature),
}

impl Response<'_> {
    /// The answer as a JSON document, without a newline.
    pub fn encode(&self, spelling: Spelling) -> String {
        let (field, value) = match self {
            Self::Certificate(der) => ("certificate", *der),
            Self::Signature(signature) => ("signature", signature.as_bytes()),
        };
        let kind = match (self, spelling) {
            (Self::Certificate(_), Spelling::Proposal) => "CertificateResponse",
            (Self::Certificate(_), Spelling::Reference) => "ExternalPublicKey",
            (Self::Signature(_), Spelling::Proposal) => "SignResponse",
            (Self::Signature(_), Spelling::Reference) => "ExternalSigner",
        };
        // None of the parts contains a character that JSON would escape.
        let value = STANDARD.encode(value);
        format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{kind}","{field}":"{value}"}}"#)
    }

    /// Writes the document, after which nothing else can be answered.
    pub fn send(&self, spelling: Spelling, mut client: StandardOutput) -> Result<(), Error> {
        let document = self.encode(spelling) + "\n";
        client.write(&document).map_err(|error| answer_lost(&error))
    }
}
