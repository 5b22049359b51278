//! The external signer's door: one request from the environment, one answer to standard output.

#![forbid(unsafe_code)]

use super::turn;
use crate::config::{Config, PinSource};
use crate::error::Error;
use crate::pin_entry::{self, Sources};
use crate::process::answer::AnswerChannel;
use crate::process::environment::{NotUtf8, SingleThreaded, TakenVariables};
use crate::process::lock::Lock;
use crate::process::unix_time;
use crate::protocol::{Operation, Request, RequestError, Response};
use crate::report;
use crate::signer::Identity;
use crate::token::{self, Module, Token};

/// Answers the request, or tells why not; the exit code.
pub(super) fn run(request: Result<String, NotUtf8>, alone: SingleThreaded) -> u8 {
    // Kept until the outcome is out: a library that hangs or crashes at its end can't spoil it.
    let mut module = None;
    let code = match answer(request, alone, &mut module) {
        Ok(()) => 0,
        Err(error) => {
            report::error(&error);
            error.exit_code()
        }
    };
    if let Some((module, _lock)) = module {
        module.finalize(code);
    }
    code
}

fn answer(
    request: Result<String, NotUtf8>,
    alone: SingleThreaded,
    opened: &mut Option<(Module, Option<Lock>)>,
) -> Result<(), Error> {
    let channel = AnswerChannel::open()?;
    let text = request.map_err(|NotUtf8| RequestError::NotUtf8)?;
    let mut request = Request::decode(&text)?;
    drop(text);
    let config = Config::from_map(&mut request.configuration)?;
    let pin_in_configuration = matches!(config.pin, PinSource::Configuration(_));
    let variables = TakenVariables::take(config.pin.variable(), alone);
    let mut pins = Sources::new(config.pin, &variables);
    drop(variables);

    let lock = turn::take(&config.library)?;
    // Said by the first of several requests at once, not by those that queued behind it.
    let first = !lock.as_ref().is_some_and(Lock::waited);
    if pin_in_configuration && first && matches!(request.operation, Operation::Sign(_)) {
        report::warning(
            "the PIN stands in the kubeconfig, where every program of yours can read it; \
             leave pin out to be asked, or set pinSource",
        );
    }
    let (module, _) = opened.insert((
        Module::open(&config.library, config.init_args.as_ref())?
            .with_wait_observer(pin_entry::show_after),
        lock,
    ));
    let mut token = token::open_or_ask(&mut pins, || Token::open(module, &config.token))?;
    let file = config.certificate_file.as_deref();
    let identity = Identity::find(&mut token, config.object, file, Some(&mut pins))?;
    match &request.operation {
        Operation::Certificate => {
            for concern in identity.certificate.concerns(unix_time()) {
                let subject = identity.certificate.subject();
                report::warning(&format!("the certificate of {subject}: {concern}"));
            }
            let response = Response::Certificate(identity.certificate.der());
            channel.send(&response.encode(request.spelling))?;
        }
        Operation::Sign(sign) => {
            let signature = identity.sign(&mut token, sign, &mut pins)?;
            let response = Response::Signature(signature.as_bytes());
            channel.send(&response.encode(request.spelling))?;
        }
    }
    Ok(())
}
