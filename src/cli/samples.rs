//! A sample of every error there is, for the tests that go through all of them.
//!
//! Here is the one place to add to: a variant that has no line below doesn't compile, and one that
//! has a line is looked for in docs/troubleshooting.md. A variant whose words vary has several.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;

use super::error::ArgumentNeeds;
use crate::certificate::CertificateError;
use crate::config::{ConfigError, Problem, TokenName};
use crate::error::Error;
use crate::hash::Hash;
use crate::kubeconfig::KubeconfigError;
use crate::pin::{PinError, PinOrigin};
use crate::process::{AnswerError, RunError};
use crate::protocol::RequestError;
use crate::token::{
    CallFailure, LoginError, ModuleError, ObjectError, ObjectSummary, SigningError, TokenError,
    TriesLeft, UnusableSlot, WhyUnusable,
};
use crate::tunnel::{UpstreamError, UpstreamFailure};

/// The values, and the compiler's word that no variant of the type is missing among them.
macro_rules! every {
    ($type:ident: $($variant:ident $({ $($field:tt)* })? $(( $($value:tt)* ))?),+ $(,)?) => {{
        #[allow(unreachable_patterns, reason = "a variant may have several samples")]
        fn _is_complete(value: &$type) {
            match value {
                $($type::$variant { .. } => {})+
            }
        }
        vec![$($type::$variant $({ $($field)* })? $(( $($value)* ))?),+]
    }};
}

/// All of them.
pub(super) fn all() -> Vec<Error> {
    let config = ConfigError {
        problems: vec![problem(), problem()],
    };
    let arguments = ArgumentNeeds {
        argument: "--context",
        other: "--write",
    };
    [
        Error::internal(text()),
        Error::from(config),
        Error::from(arguments),
    ]
    .into_iter()
    .chain(answer().into_iter().map(Error::from))
    .chain(certificate().into_iter().map(Error::from))
    .chain(pin().into_iter().map(Error::from))
    .chain(kubeconfig().into_iter().map(Error::from))
    .chain(login().into_iter().map(Error::from))
    .chain(module().into_iter().map(Error::from))
    .chain(object().into_iter().map(Error::from))
    .chain(request().into_iter().map(Error::from))
    .chain(run().into_iter().map(Error::from))
    .chain(signing().into_iter().map(Error::from))
    .chain(token().into_iter().map(Error::from))
    .chain(upstream().into_iter().map(|failure| {
        Error::from(UpstreamError {
            cluster: text(),
            server: text(),
            failure,
        })
    }))
    .collect()
}

fn kubeconfig() -> Vec<KubeconfigError> {
    every!(KubeconfigError:
        Authority { cluster: text(), path: path(), reason: text() },
        Field { path: path(), line: Some(3), field: text(), expected: text() },
        Field { path: path(), line: None, field: text(), expected: text() },
        InsecureAuthority { cluster: text() },
        Malformed { path: path(), line: 3, reason: text() },
        Missing { paths: vec![path(), path()] },
        Missing { paths: Vec::new() },
        NoCluster { name: text(), candidates: vec![text()] },
        NoContext { name: text(), candidates: Vec::new() },
        NoCurrentContext { candidates: Vec::new() },
        NoServer { cluster: text() },
        NothingToServe { kubeconfig: text(), inside: false },
        NotEditable { path: path() },
        NotExternalSigner { context: text(), user: text() },
        Unreadable { path: path(), reason: text() },
        Unwritable { path: path(), reason: text() },
        UserExists { path: path(), name: text() },
        UserUnnamed,
        WritableByOthers { path: path(), mode: 0o666 },
    )
}

fn answer() -> Vec<AnswerError> {
    every!(AnswerError:
        Closed,
        Lost(ErrorKind::BrokenPipe.into()),
        NotSetAside(ErrorKind::Other.into()),
    )
}

fn certificate() -> Vec<CertificateError> {
    every!(CertificateError:
        Unusable { source_name: text(), reason: text() },
        UnsupportedKey { source_name: text(), algorithm: text() },
    )
}

fn pin() -> Vec<PinError> {
    every!(PinError:
        Askpass { program: path(), reason: text() },
        Cancelled { token: text() },
        CancelledBefore { token: text() },
        Environment { name: text(), reason: "is not set" },
        File { path: path(), reason: text() },
        FinalTry { token: text(), origin: PinOrigin::Person },
        FinalTryAtReader { token: text() },
        Length { token: text(), origin: PinOrigin::StandardInput, shortest: 6, longest: 8 },
        NoAskpass,
        NoPin { token: text() },
        RefusedBefore { token: text(), origin: PinOrigin::Askpass(path()) },
        RefusedBefore { token: text(), origin: PinOrigin::Configuration },
        Repeated { token: text(), origin: PinOrigin::Askpass(path()) },
        StandardInput { reason: text() },
        Terminal { reason: text() },
        TerminalLeft { token: text() },
        TimedOut { token: text(), seconds: 60 },
    )
}

fn login() -> Vec<LoginError> {
    every!(LoginError:
        Call { token: text(), failure: failure() },
        Incorrect {
            token: text(),
            origin: PinOrigin::Person,
            left: TriesLeft::Untold,
            failure: failure(),
        },
        Incorrect {
            token: text(),
            origin: PinOrigin::Configuration,
            left: TriesLeft::None,
            failure: failure(),
        },
        Incorrect {
            token: text(),
            origin: PinOrigin::Askpass(path()),
            left: TriesLeft::Untold,
            failure: failure(),
        },
        Locked { token: text() },
        NoMemory { token: text(), origin: PinOrigin::Person, reason: text() },
        NotSet { token: text(), failure: failure() },
        ReaderCancelled { token: text(), failure: failure() },
        ToBeChanged { token: text(), module: path(), told: text() },
        TriesSpent { token: text() },
    )
}

fn module() -> Vec<ModuleError> {
    every!(ModuleError:
        Crashed { path: path(), signal: "SIGABRT" },
        Hangs { path: path(), doing: "the login (C_Login)", seconds: 60 },
        Initialize { path: path(), failure: failure() },
        Initialize { path: path(), failure: CallFailure { function: text(), reason: "CKR_ARGUMENTS_BAD".to_owned() } },
        Load { path: path(), reason: text() },
        NoAnswer { path: path(), reason: text() },
        NoFunctions { path: path(), failure: failure() },
        NoneFound,
        NotAModule { path: path(), reason: text() },
        OtherInitArgs { path: path() },
    )
}

fn object() -> Vec<ObjectError> {
    every!(ObjectError:
        Call { doing: "reading the certificates", failure: failure() },
        CertificateFile { path: path(), reason: text() },
        Choice { found: vec![text()] },
        Invalid { subject: text(), reason: text() },
        Mismatch { certificate: text(), key: text() },
        NoCertificate {
            selector: text(),
            token: text(),
            passed_over: 0,
            unreadable: 0,
            present: Vec::new(),
            is_unsearched: false,
        },
        NoCertificate {
            selector: text(),
            token: text(),
            passed_over: 1,
            unreadable: 1,
            present: vec![summary()],
            is_unsearched: false,
        },
        NoCertificate {
            selector: text(),
            token: text(),
            passed_over: 0,
            unreadable: 0,
            present: Vec::new(),
            is_unsearched: true,
        },
        NoKey { selector: text(), token: text(), present: Vec::new() },
        NoKey { selector: text(), token: text(), present: vec![summary()] },
        NoneFits { selector: text(), found: Vec::new() },
        NoneFits { selector: text(), found: vec![text()] },
        NoKeyYet { token: text(), label: text(), module: text() },
        NoUsable { found: Vec::new() },
        NoUsable { found: vec![text()] },
        Several {
            what: "certificates",
            selector: text(),
            token: text(),
            found: vec![summary(), summary()],
        },
        Several {
            what: "private keys",
            selector: text(),
            token: text(),
            found: vec![summary(), summary()],
        },
    )
}

fn request() -> Vec<RequestError> {
    every!(RequestError:
        ApiVersion(text()),
        DigestLength { hash: Hash::Sha256, actual: 31 },
        EmptyDigest,
        Hash(10),
        Kind(text()),
        Malformed { field: text(), expected: "a text" },
        Missing { field: "digest" },
        NotJson { line: 1, column: 2 },
        NotObject,
        NotUtf8,
        OptionsContradictKey { options: text(), key: text() },
        OptionsType(text()),
        Salt(-2),
        SaltTooLong { salt: 300, longest: 222, hash: Hash::Sha256, key: text() },
        KeyTooShort { hash: Hash::Sha512, key: text() },
    )
}

fn run() -> Vec<RunError> {
    every!(RunError:
        Command { name: name(), reason: ErrorKind::PermissionDenied.into() },
        CommandNotFound { name: name() },
        Directory { reason: text() },
        Interrupted { signal: 2 },
        Preparation { reason: text() },
    )
}

fn signing() -> Vec<SigningError> {
    every!(SigningError:
        Call { key: text(), scheme: text(), failure: failure() },
        Invalid { key: text(), scheme: text() },
        Malformed { scheme: text(), length: 7 },
        NoMechanism { token: text(), scheme: text(), wanted: &["CKM_EDDSA"] },
        NotForSigning { key: text(), scheme: text(), failure: failure() },
        NoReply { library: path(), seconds: 60 },
        Refused { key: text(), scheme: text(), failure: failure() },
        Random(text()),
    )
}

fn token() -> Vec<TokenError> {
    every!(TokenError:
        Ambiguous { selector: text(), found: vec![token_name(), token_name()] },
        Busy { waited: Duration::from_secs(90), holder: None },
        Busy { waited: Duration::from_secs(90), holder: Some(4711) },
        Call { doing: "opening a session", failure: failure() },
        Call { doing: "reading the token's description", failure: failure() },
        Contradiction { selector: text(), found: token_name() },
        EmptySlot { slot: 7, present: Vec::new() },
        EmptySlot { slot: 7, present: vec![token_name()] },
        NoSlot { slot: 7, present: vec![token_name()], unusable: Vec::new() },
        NoneFits { selector: text() },
        NotInitialized { slot: 7, present: Vec::new() },
        NoToken { selector: text(), library: text(), present: Vec::new(), unusable: Vec::new() },
        NoToken { selector: text(), library: text(), present: Vec::new(), unusable: vec![UnusableSlot { name: text(), why: WhyUnusable::Empty }] },
        Removed { token: text(), failure: failure() },
        SeveralForPin { found: vec![token_name(), token_name()] },
        Slots(failure()),
    )
}

fn upstream() -> Vec<UpstreamFailure> {
    every!(UpstreamFailure:
        Answer(500),
        Broken(text()),
        Connect(text()),
        NotAsked,
        NotRecognised,
        OwnCertificate,
        Proxy { proxy: text(), reason: text() },
        ProxyAnswer { proxy: text(), status: StatusCode::PROXY_AUTHENTICATION_REQUIRED },
        ProxyAnswer { proxy: text(), status: StatusCode::FORBIDDEN },
        Rejected { certificate: text(), alert: text() },
        Resolve(text()),
        SchemesRefused { key: text() },
        TimedOut { doing: "connecting", seconds: 30 },
        Unusable("its certificate-authority can't be used: VALUE".to_owned()),
        Unusable("its certificate-authority holds no certificate".to_owned()),
        Unusable("its certificate-authority is not PEM: VALUE".to_owned()),
        Unusable(
            "it has no certificate-authority, and this machine has no trusted certificates"
                .to_owned(),
        ),
        Authority,
        Untrusted(text()),
        VersionRefused { key: text(), alert: text() },
    )
}

/// What stands for a value in the samples.
fn text() -> String {
    "VALUE".to_owned()
}

fn path() -> PathBuf {
    PathBuf::from("/VALUE")
}

fn name() -> OsString {
    OsString::from("VALUE")
}

fn failure() -> CallFailure {
    CallFailure {
        function: "C_Sign".to_owned(),
        reason: "CKR_DEVICE_ERROR".to_owned(),
    }
}

fn problem() -> Problem {
    Problem::new("pathLib is missing", "set pathLib")
}

fn summary() -> ObjectSummary {
    ObjectSummary {
        id: "2".to_owned(),
        label: text(),
        what: "certificate".to_owned(),
    }
}

fn token_name() -> TokenName {
    TokenName {
        slot: 7,
        label: text(),
        serial: text(),
    }
}
