//! The external signer: one request from the environment, one answer to standard output.

#![forbid(unsafe_code)]

use crate::answer::{AnswerChannel, Response};
use crate::config::{Config, PinSource};
use crate::error::Error;
use crate::library::{self, LockReports};
use crate::pin_entry::Sources;
use crate::pipeline::{Library, Pipeline};
use crate::process::environment::{NotUtf8, SingleThreaded, TakenVariables};
use crate::process::{lock, unix_time};
use crate::protocol::{Operation, Request, RequestError};
use crate::report;

/// Answers the request, or reports why not; the exit code.
pub fn run(request: Result<String, NotUtf8>, alone: SingleThreaded) -> u8 {
    // Finalised after the answer is out: a library that hangs or crashes then can't spoil it.
    let mut library = None;
    let code = match answer(request, alone, &mut library) {
        Ok(()) => 0,
        Err(error) => report::error(&error),
    };
    if let Some(library) = library {
        library.finalize(code);
    }
    code
}

fn answer(
    request: Result<String, NotUtf8>,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let channel = AnswerChannel::open()?;
    let text = request.map_err(|NotUtf8| RequestError::NotUtf8)?;
    let mut request = Request::decode(&text)?;
    drop(text);
    let mut config = Config::from_map(&mut request.configuration)?;
    let pin_source = std::mem::replace(&mut config.pin, PinSource::Prompt);
    let pin_in_configuration = matches!(pin_source, PinSource::Configuration(_));
    let variables = TakenVariables::take(pin_source.variable(), alone);
    let mut pins = Sources::new(pin_source, &variables);
    drop(variables);
    let init_args = config.init_args.as_ref();
    let reports = &mut LockReports;
    let library = library::open(&config.library, init_args, lock::LIMIT, reports)?;
    let library = opened.insert(library);
    // Of several requests at once, only the first says it, and not those that waited for it.
    let is_signature = matches!(request.operation, Operation::Sign(_));
    if pin_in_configuration && is_signature && !library.lock.has_waited() {
        report::warning(
            "the PIN stands in the kubeconfig, where every program of yours can read it; \
             leave pin out to be asked, or set pinSource",
        );
    }
    let observer = &mut ();
    let mut token = library.token(&config.token, Some(&mut pins), observer)?;
    let config = &config;
    let mut pipeline = Pipeline { config, observer };
    let identity = pipeline.identity(&mut token, Some(&mut pins))?;
    match &request.operation {
        Operation::Certificate => {
            let certificate = &identity.certificate;
            for concern in certificate.concerns(unix_time()) {
                let subject = certificate.subject();
                report::warning(&format!("the certificate of {subject}: {concern}"));
            }
            channel.send(&Response::Certificate(certificate.der()), request.spelling)?;
        }
        Operation::Sign(sign) => {
            let scheme = pipeline.scheme(&token, &identity, &sign.options)?;
            let key = pipeline.key(&mut token, identity, &mut pins)?;
            let signature = pipeline.sign(&mut token, &key, scheme, &sign.digest, &mut pins)?;
            channel.send(&Response::Signature(&signature), request.spelling)?;
        }
    }
    Ok(())
}
