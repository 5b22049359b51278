//! `jwks`: what an operator needs so that a cluster takes tokens that a key has signed.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use x509_parser::pem::Pem;

use super::again::Invocation;
use super::completions::values;
use super::error::JwksError;
use super::holder::KeyHolder;
use super::key_options::KeyOptions;
use super::new_file::write_public;
use super::output::CommandOutput;
use crate::certificate::PublicKey;
use crate::config::{Config, duration};
use crate::enrollment::Applicant;
use crate::error::Error;
use crate::jose::{Algorithm, Issuer, Jwk, TrustedIssuer};
use crate::library::{self, LockReports};
use crate::pipeline::{Library, Pipeline, read_certificates};
use crate::printable::printable_json;
use crate::process::environment::SingleThreaded;
use crate::process::lock;
use crate::report;

/// Print what a cluster has to know to take tokens that a key signs (`credential --as jwt`)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer jwks --issuer https://keys.example/jane
  pkcs11-external-signer jwks --issuer https://keys.example/jane \\
      --certificate-file jane.pem --out /srv/keys/jane > authentication.yaml

It asks for no PIN. With --out, the directory is to be served at the issuer's URL, and the \
AuthenticationConfiguration for the API server is printed.")]
pub(super) struct JwksArguments {
    #[command(flatten)]
    key: KeyOptions,
    /// The issuer's URL; one for each person, since who has the key can sign any claims
    #[arg(long, value_name = "URL")]
    issuer: Issuer,
    /// Where the files are served, if not at the issuer's URL
    #[arg(long, value_name = "URL")]
    served_at: Option<Issuer>,
    /// The CA of that server, in PEM, if the API server's machine doesn't trust it
    #[arg(long, value_name = "FILE", add = values::files())]
    certificate_authority: Option<PathBuf>,
    /// For whom the tokens are made; may be repeated
    #[arg(long, value_name = "NAME", default_value = super::credential::AUDIENCE)]
    audience: Vec<String>,
    /// The user that the API server takes the key's holder for; without it the certificate's
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A group of that user; may be repeated
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// How long a token may live, such as 5m
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = lifetime)]
    duration: Duration,
    /// Write the files for a web server into this directory
    #[arg(long, value_name = "DIRECTORY", add = values::files())]
    out: Option<PathBuf>,
}

impl JwksArguments {
    pub(super) fn invocation(&self) -> Invocation<'_> {
        self.key.invocation()
    }
}

/// A time as Go writes it.
pub(super) fn lifetime(text: &str) -> Result<Duration, &'static str> {
    duration(text).ok_or("it is no duration such as 5m or 1h30m, from 1s to 7d")
}

/// Prints or writes the documents; the exit code.
#[cold]
pub(super) fn run(arguments: &JwksArguments, verbosity: u8, alone: SingleThreaded) -> u8 {
    let mut opened = None;
    let code = match produce(arguments, verbosity, alone, &mut opened) {
        Ok(()) => 0,
        Err(error) => report::error(&error),
    };
    if let Some(library) = opened {
        library.finalize(code);
    }
    code
}

fn produce(
    arguments: &JwksArguments,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let authority = arguments.certificate_authority.as_deref();
    let authority = authority.map(authorities).transpose()?;
    let (key, user) = public_key(arguments, verbosity, alone, opened)?;
    let user = arguments.user.clone().or(user).ok_or(JwksError::NoUser)?;
    let person = Applicant::new(user, arguments.group.clone())?;
    let issuer = &arguments.issuer;
    let served_at = arguments.served_at.as_ref().unwrap_or(issuer);
    let keys = text(&Jwk::of(&key)?.set());
    let discovery = text(&issuer.discovery(served_at, &Algorithm::of_key(&key)?));
    let configuration = TrustedIssuer {
        issuer,
        served_at,
        authority: authority.as_deref(),
        audiences: &arguments.audience,
        user: person.user(),
        groups: person.groups(),
        longest_life: arguments.duration.as_secs(),
    }
    .configuration();
    let Some(directory) = &arguments.out else {
        let (discovery_url, keys_url) = (served_at.discovery_url(), served_at.keys_url());
        // Each document is YAML, since JSON is.
        let stream = format!(
            "# To be served at {discovery_url}\n{discovery}---\n# To be served at {keys_url}\n{keys}---\n\
             # For kube-apiserver --authentication-config\n{configuration}"
        );
        return Ok(output.print(&stream)?);
    };
    // The keys first, since the other one leads to them.
    write_public(&directory.join(Issuer::KEYS), &keys)?;
    write_public(&directory.join(Issuer::DISCOVERY), &discovery)?;
    Ok(output.print(&configuration)?)
}

/// The public key, and the user that its certificate names.
fn public_key(
    arguments: &JwksArguments,
    verbosity: u8,
    alone: SingleThreaded,
    opened: &mut Option<Library>,
) -> Result<(PublicKey, Option<String>), Error> {
    let options = &arguments.key;
    if let (Some(file), false, None) =
        (&options.certificate_file, options.names_a_key(), &options.context)
    {
        let (certificate, _) = read_certificates(Path::new(file))?;
        return Ok((certificate.public_key().clone(), certificate.user));
    }
    let (mut source, no_key) = options.source_if_any()?;
    // A library that is loaded sees what is left in the environment.
    drop(super::take_variables(source.configuration.clone(), alone));
    if source.context.is_none() {
        let completed = options.complete(&mut source.configuration, verbosity);
        completed.map_err(|error| no_key.unwrap_or(error))?;
    }
    let config = &Config::from_map(&mut source.configuration)?;
    let (init_args, observer) = (config.init_args.as_ref(), &mut LockReports);
    let library = library::open(&config.library, init_args, lock::LIMIT, observer)?;
    let library = opened.insert(library);
    let mut token = library.token(&config.token, None, observer)?;
    let mut pipeline = Pipeline { config, observer };
    let holder = KeyHolder::find(&mut pipeline, &mut token, None)?;
    Ok((holder.key.public_key().clone(), holder.user))
}

/// The file's certificates in PEM, without what stands between them.
fn authorities(path: &Path) -> Result<String, Error> {
    let failure = |reason: String| {
        let path = path.to_owned();
        Error::from(JwksError::Authority { path, reason })
    };
    let text = fs::read_to_string(path).map_err(|error| failure(error.to_string()))?;
    let mut blocks = String::new();
    let mut is_inside = false;
    for line in text.lines().map(str::trim) {
        is_inside |= line == "-----BEGIN CERTIFICATE-----";
        if is_inside {
            blocks += &format!("{line}\n");
        }
        is_inside &= line != "-----END CERTIFICATE-----";
    }
    let is_certificate =
        |block: Result<Pem, _>| block.is_ok_and(|block: Pem| block.parse_x509().is_ok());
    match !blocks.is_empty() && Pem::iter_from_buffer(blocks.as_bytes()).all(is_certificate) {
        true => Ok(blocks),
        false => Err(failure("it holds no certificates in PEM".to_owned())),
    }
}

fn text(document: &Value) -> String {
    format!("{}\n", printable_json(&format!("{document:#}")))
}
