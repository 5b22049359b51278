//! The configuration, on lines of `key=value`: what is read can be written down and read again as
//! the same, and no message shows a PIN or more than one readable line.
//!
//! It looks at files by the paths it makes up, but opens none.

#![no_main]

use config::{Config, Filter, PinSource, Uri};
use libfuzzer_sys::fuzz_target;
use messages::error::Error;

/// In every `pin`, and in no other value.
const MARK: &str = "s3cr3t";

fuzz_target!(|text: &str| {
    if text.contains(MARK) {
        return;
    }
    let pairs: Vec<(&str, String)> = text
        .split('\n')
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| match key {
            "pin" if !value.is_empty() => (key, format!("{value}{MARK}")),
            _ => (key, value.to_owned()),
        })
        .collect();
    let config = match read(&pairs) {
        Ok(config) => config,
        Err(error) => return check(&error),
    };
    let written = written(&config);
    let Some(written) = written else { return };
    let again = read(&written).unwrap_or_else(|error| panic!("{written:?}: {error}"));
    assert_eq!(self::written(&again).as_ref(), Some(&written));
    // Choosing by it finds what it names.
    let filter = Filter::from_map(&mut map(&pairs)).unwrap_or_else(|error| panic!("{error}"));
    let library = filter.library.map(|library| library.path().to_owned());
    assert_eq!(library.as_deref(), Some(config.library.path()));
    for (shown, same) in [
        (config.token.to_string(), filter.token.to_string()),
        (config.object.to_string(), filter.object.to_string()),
    ] {
        assert_eq!(shown, same);
        assert!(!shown.is_empty());
    }
});

fn map<'a, T>(pairs: &'a [(&str, String)]) -> T
where
    T: FromIterator<(&'a str, &'a str)>,
{
    let pairs = pairs.iter().map(|(key, value)| (*key, value.as_str()));
    pairs.collect()
}

fn read(pairs: &[(&str, String)]) -> Result<Config, Error> {
    Config::from_map(&mut map(pairs))
}

fn check(error: &Error) {
    // A command in the help repeats a path whole, and quoted for a shell.
    for (text, longest) in [(error.to_string(), 2000), (error.remedy().to_string(), 20_000)] {
        assert!(!text.contains(MARK) && text.len() < longest && !text.ends_with('.'), "{text}");
    }
}

/// As a user would write it; `None` for a library whose path is not text, and for a token that says nothing of itself,
/// which only a URI as it was given asks for.
fn written(config: &Config) -> Option<Vec<(&'static str, String)>> {
    let pin_source = match &config.pin {
        PinSource::Askpass => "askpass".to_owned(),
        PinSource::Configuration(pin) => pin.expose().to_owned(),
        PinSource::Environment(name) => format!("env:{name}"),
        PinSource::File(path) => format!("file:{}", path.to_str()?),
        PinSource::Prompt => "prompt".to_owned(),
        PinSource::StandardInput => "stdin".to_owned(),
    };
    let pin_key = match &config.pin {
        PinSource::Configuration(_) => "pin",
        _ => "pinSource",
    };
    // What no key but `uri` says.
    let uri = Uri::of([
        ("manufacturer", config.token.manufacturer.clone()),
        ("model", config.token.model.clone()),
    ]);
    let certificate_file = match &config.certificate_file {
        Some(path) => Some(path.to_str()?.to_owned()),
        None => None,
    };
    let library = config.library.path().to_str()?.to_owned();
    let token = &config.token;
    let object = &config.object;
    let of_token = [&token.label, &token.serial, &token.manufacturer, &token.model];
    if of_token.into_iter().flatten().any(String::is_empty) {
        return None;
    }
    let pairs = [
        ("pathLib", Some(library)),
        ("slotId", token.slot.map(|slot| slot.to_string())),
        ("tokenLabel", token.label.clone()),
        ("tokenSerial", token.serial.clone()),
        ("uri", Some(uri.to_string())),
        ("objectId", object.id.as_ref().map(ToString::to_string)),
        ("objectLabel", object.label.clone()),
        ("certificateFile", certificate_file),
        (pin_key, Some(pin_source)),
    ];
    let pairs = pairs.into_iter().filter_map(|(key, value)| Some((key, value?)));
    Some(pairs.collect())
}
