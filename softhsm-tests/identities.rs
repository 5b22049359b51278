//! Whom a request or a certificate is for: Go, and so an API server and its signer, must read nobody else in what we
//! accept. All that is tried is given to both.

use std::collections::BTreeSet;

use crypto::certificate::{Certificate, CertificationRequest};
use rcgen::KeyPair;
use serde::Deserialize;

use crate::fixture::der::{
    COMMON_NAME, Fields, ORGANIZATION, attribute, certificate, element, relative, request,
    request_pem,
};
use crate::fixture::*;

/// A name that is missing is as good as none.
#[derive(Debug, Deserialize, Eq, PartialEq)]
struct Identity {
    user: String,
    /// Go's certificates have them in an order of their own.
    groups: BTreeSet<String>,
}

enum Tried {
    Request(String),
    Certificate(Vec<u8>),
}

impl Tried {
    fn ours(&self) -> Option<Identity> {
        let (user, groups) = match self {
            Self::Request(pem) => {
                CertificationRequest::from_pem(pem).map(|it| (it.user, it.groups)).ok()?
            }
            Self::Certificate(der) => {
                Certificate::from_der(der, "it").map(|it| (it.user, it.groups)).ok()?
            }
        };
        Some(Identity { user: user.unwrap_or_default(), groups: groups.into_iter().collect() })
    }

    fn line(&self) -> String {
        let (kind, bytes) = match self {
            Self::Request(pem) => ("request", pem.as_bytes()),
            Self::Certificate(der) => ("certificate", der.as_slice()),
        };
        format!("{kind} {}\n", STANDARD.encode(bytes))
    }
}

/// A line for each of these.
fn answers_of_go(lines: String) -> Vec<String> {
    static GO: LazyLock<PathBuf> = LazyLock::new(|| go_program("identities"));
    let mut go = Command::new(GO.as_path());
    let mut go = go.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = go.stdin.take().unwrap();
    let count = lines.lines().count();
    let writer = thread::spawn(move || input.write_all(lines.as_bytes()).unwrap());
    let output = go.wait_with_output().unwrap();
    writer.join().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<_> = answers.lines().map(str::to_owned).collect();
    assert_eq!(answers.len(), count);
    answers
}

/// How many were accepted by both, and how many we alone refused.
fn compared(tried: &[Tried]) -> [usize; 2] {
    let answers = answers_of_go(tried.iter().map(Tried::line).collect());
    let mut counted = [0; 2];
    for (tried, answer) in tried.iter().zip(&answers) {
        let theirs: Option<Identity> = serde_json::from_str(answer).unwrap();
        let Some(theirs) = theirs else { continue };
        match tried.ours() {
            Some(ours) => {
                assert_eq!(ours, theirs, "{}", tried.line());
                counted[0] += 1;
            }
            None => counted[1] += 1,
        }
    }
    counted
}

fn name(parts: &[Vec<u8>]) -> Vec<u8> {
    element(0x30, &[&parts.concat()])
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

/// The request and the certificate for each of these.
fn both(names: impl IntoIterator<Item = Vec<u8>>) -> Vec<Tried> {
    let key = key();
    let names = names.into_iter();
    let tried = names.flat_map(|name| {
        let request = request_pem(&request(&key, &name));
        [Tried::Request(request), Tried::Certificate(certificate(&key, &name))]
    });
    tried.collect()
}

#[test]
fn usual_names_are_read_as_go_reads_them() {
    let common = |tag, value: &[u8]| element(0x31, &[&attribute(COMMON_NAME, tag, value)]);
    let unit = element(0x31, &[&attribute(11, 0x1e, b"\0j")]);
    let names = [
        name(&[relative(ORGANIZATION, "dev"), relative(COMMON_NAME, "jane")]),
        name(&[relative(COMMON_NAME, "jane"), relative(COMMON_NAME, "otto")]),
        name(&[relative(COMMON_NAME, "größe\0, \"x\""), relative(ORGANIZATION, "")]),
        name(&[relative(ORGANIZATION, "a"), relative(ORGANIZATION, "b")]),
        name(&[common(0x13, b"jane"), unit]),
        name(&[common(0x16, b"jane@example.com")]),
        name(&[common(0x12, b"123")]),
        name(&[common(0x14, b"jane")]),
        name(&[common(0x1e, b"\0j\0\xe4")]),
        name(&[relative(COMMON_NAME, "jane"), relative(COMMON_NAME, "")]),
        name(&[element(
            0x31,
            &[&attribute(ORGANIZATION, 0x0c, b"dev"), &attribute(COMMON_NAME, 0x0c, b"jane")],
        )]),
        name(&[]),
    ];
    let tried = both(names);
    assert_eq!(compared(&tried), [tried.len(), 0]);
}

#[test]
fn a_text_with_more_than_one_canonical_request_is_none() {
    let key = key();
    let of = |user: &str| request(&key, &name(&[relative(COMMON_NAME, user)]));
    let [jane, evil] = ["jane", "cluster-admin"].map(of).map(|der| request_pem(&der));
    const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
    const END: &str = "-----END CERTIFICATE REQUEST-----";
    let base64 = |pem: &str| pem.replace(BEGIN, "").replace(END, "").replace('\n', "");
    let mut texts = Vec::new();
    for (first, second) in [(&jane, &evil), (&evil, &jane), (&jane, &String::new())] {
        let [inner, outer] = [first, second].map(|it| base64(it));
        texts.extend([
            format!("{first}{second} "),
            format!("{first}\n{second}"),
            format!(" {first}{second}"),
            format!("\u{feff}{first}{second}"),
            format!("{}{second}", first.replace(END, "-----END X-----")),
            format!("{}{second}", first.replace(END, "-----END CERTIFICATE REQUEST")),
            format!("{}{second}", first.replace(END, "-----END CERTIFICATE REQUEST----")),
            format!("{}{second}", first.replace(END, "-----END NEW CERTIFICATE REQUEST-----")),
            format!("{}{second}", first.replace(END, "")),
            format!("{}{second}", first.replace(&format!("\n{END}"), END)),
            format!("{}{second}", first.replace(&format!("{END}\n"), END)),
            format!("{}{second}", first.replace(END, &format!("{END} x"))),
            format!("{}{second}", first.replace(BEGIN, &format!("{BEGIN}\n{BEGIN}"))),
            format!("{}{second}", first.replace(BEGIN, &format!("{BEGIN}\nProc-Type: 4\n"))),
            format!("{}{second}", first.replace(BEGIN, &format!("{BEGIN}\nProc-Type: 4\n\n"))),
            format!("{}{second}", first.replace(BEGIN, &format!("{BEGIN} x"))),
            format!("{}{second}", first.replace(BEGIN, &format!("{BEGIN} "))),
            format!("{}{second}", first.replace(BEGIN, "-----BEGIN NEW CERTIFICATE REQUEST-----")),
            format!("{}{second}", first.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST")),
            format!("{}{second}", first.replace('\n', "\r\n")),
            format!("{}{second}", first.replace('\n', "\r")),
            format!("{}{second}", first.replace('\n', " \n")),
            format!("{}{second}", first.replace('\n', "\t\n")),
            format!("{}{second}", first.replace('\n', "\n ")),
            format!("{}{second}", first.replace('\n', "\n\n")),
            format!("{}{second}", first.replacen('M', "M ", 1)),
            format!("{}{second}", first.replacen('M', "M\t", 1)),
            format!("{}{second}", first.replacen('M', "M=", 1)),
            format!("{BEGIN}\n{inner}\n{END}\n{second}"),
            format!("{BEGIN}\n{inner}{outer}\n{END}\n"),
            format!("{BEGIN}{inner}{END}\n{second}"),
            format!("{BEGIN}\n{inner}={outer}\n{END}\n"),
            first.trim_end().to_owned(),
            first.replace(END, &format!("{BEGIN}\n{outer}\n{END}")),
            first.replace(BEGIN, &format!("{BEGIN}\n{outer}\n{BEGIN}")),
        ]);
    }
    let accepted = texts.iter().filter(|it| CertificationRequest::from_pem(it).is_ok());
    assert_eq!(accepted.collect::<Vec<_>>(), Vec::<&String>::new());
    let tried: Vec<_> = texts.into_iter().chain([jane, evil]).map(Tried::Request).collect();
    let [by_both, by_go] = compared(&tried);
    assert_eq!(by_both, 2);
    assert!(by_go > 50, "{by_go}");
}

/// What may stand in a Name, and what may not.
fn parts() -> Vec<Vec<u8>> {
    let set = |content: &[u8]| element(0x31, &[content]);
    let mut parts = vec![
        set(b""),
        b"\x30\x00".to_vec(),
        b"\x31\x80\x00\x00".to_vec(),
        b"\x31\x81\x00".to_vec(),
        b"\x05\x00".to_vec(),
        b"\x02\x01\x00".to_vec(),
        b"\0".to_vec(),
        b"\x31".to_vec(),
    ];
    let tags = [
        0x0c, 0x13, 0x16, 0x12, 0x14, 0x15, 0x1e, 0x1c, 0x1a, 0x1b, 0x19, 0x01, 0x02, 0x03, 0x04,
        0x05, 0x0a, 0x17, 0x18, 0x24, 0x2c, 0x30, 0x31, 0x33, 0x4c, 0x6c, 0x80, 0x8c, 0xac, 0xcc,
    ];
    let values: [&[u8]; 8] = [
        b"jane",
        b"cluster-admin",
        b"",
        b"\0",
        b"j\0ane",
        b"\0j\0a",
        b"j\xe4ne",
        "jäne".as_bytes(),
    ];
    for kind in [COMMON_NAME, ORGANIZATION] {
        for value in values {
            let usual = attribute(kind, 0x0c, value);
            parts.extend(tags.iter().map(|tag| set(&attribute(kind, *tag, value))));
            let oid = [6, 3, 0x55, 4, kind];
            let text = element(0x0c, &[value]);
            let length = u8::try_from(value.len()).unwrap();
            let odd: [&[&[u8]]; 8] = [
                // A third member, a second value, none.
                &[&oid, &text, b"\x05\x00"],
                &[&oid, &text, &text],
                &[&oid],
                // Longer forms of the length, of the tag, and of the object identifier.
                &[&oid, &[0x0c, 0x81, length], value],
                &[&oid, &[0x0c, 0x82, 0, length], value],
                &[&oid, &[0x1f, 0x0c, length], value],
                &[&[6, 4, 0x55, 4, 0x80, kind], &text],
                // Of indefinite length.
                &[&oid, &[0x2c, 0x80], &text, &[0, 0]],
            ];
            parts.extend(odd.map(|odd| set(&element(0x30, odd))));
            let other = attribute(ORGANIZATION, 0x0c, b"ops-admins");
            parts.extend([
                set(&[usual.clone(), other.clone()].concat()),
                set(&[other.clone(), usual.clone()].concat()),
                set(&[usual.clone(), usual.clone()].concat()),
                set(&[usual.clone(), b"\x05\x00".to_vec()].concat()),
                element(0x30, &[&usual]),
                element(0x11, &[&usual]),
                element(0xa0, &[&usual]),
                [&[0x31, 0x81, usual.len() as u8], usual.as_slice()].concat(),
                [b"\x31\x80", usual.as_slice(), b"\0\0"].concat(),
                set(&usual)[..usual.len()].to_vec(),
            ]);
        }
    }
    parts
}

#[test]
fn go_reads_nobody_else_in_a_name_that_is_accepted() {
    let (jane, dev) = (relative(COMMON_NAME, "jane"), relative(ORGANIZATION, "dev"));
    let parts = parts();
    // Each alone, behind, before and between what is usual; then any of them.
    let mut names: Vec<_> = parts
        .iter()
        .flat_map(|part| {
            [
                name(std::slice::from_ref(part)),
                name(&[dev.clone(), jane.clone(), part.clone()]),
                name(&[part.clone(), dev.clone(), jane.clone()]),
                name(&[dev.clone(), part.clone(), relative(COMMON_NAME, "cluster-admin")]),
            ]
        })
        .collect();
    let mut numbers = Numbers::new();
    // Most of them such as both sides take.
    let usual = [jane, dev, relative(COMMON_NAME, "cluster-admin"), Vec::new(), parts[0].clone()];
    for _ in 0..4_000 {
        let length = 1 + numbers.below(5);
        let chosen: Vec<_> = (0..length)
            .map(|_| match numbers.below(4) {
                0 => numbers.one(&parts).clone(),
                _ => numbers.one(&usual).clone(),
            })
            .collect();
        names.push(name(&chosen));
    }
    let [by_both, by_go] = compared(&both(names));
    assert!(by_both > 1_000 && by_go > 1_000, "{by_both} {by_go}");
}

#[test]
fn go_reads_nobody_else_in_what_was_tampered_with() {
    let key = key();
    let subject = name(&[relative(ORGANIZATION, "dev"), relative(COMMON_NAME, "jane")]);
    let mut numbers = Numbers::new();
    let mut tampered = |der: &[u8]| {
        let mut der = der.to_vec();
        for _ in 0..=numbers.below(2) {
            let place = numbers.below(der.len());
            let byte = *numbers.one(&[0, 1, 3, 10, 0x0c, 0x30, 0x31, 0x80, 0x81, 0xa0, 0xff]);
            match numbers.below(4) {
                0 => der[place] = byte,
                1 => der[place] ^= 1 << numbers.below(8),
                2 => der.insert(place, byte),
                _ => drop(der.remove(place)),
            }
        }
        der
    };
    let [request, certificate] = [request(&key, &subject), certificate(&key, &subject)];
    let mut tried = Vec::new();
    for _ in 0..5_000 {
        tried.push(Tried::Request(request_pem(&tampered(&request))));
        tried.push(Tried::Certificate(tampered(&certificate)));
    }
    // Another version; bytes behind the signature, and behind all of it.
    let mut other = request.clone();
    let version = other.windows(3).position(|it| it == b"\x02\x01\x00").unwrap();
    other[version + 2] = 1;
    let longer = [request.as_slice(), b"\x05\x00"].concat();
    let mut inside = longer.clone();
    assert_eq!(inside[..2], *b"\x30\x81");
    inside[2] += 2;
    // A default that is there, where DER leaves it out.
    let mut explicit = certificate.clone();
    let serial = explicit.windows(3).position(|it| it == b"\x02\x01\x01").unwrap();
    explicit.splice(serial..serial, *b"\xa0\x03\x02\x01\x00");
    assert_eq!([&explicit[..2], &explicit[4..6]], [b"\x30\x82", b"\x30\x81"]);
    explicit[3] += 5;
    explicit[6] += 5;
    let odd = [other, longer, inside].map(|der| Tried::Request(request_pem(&der)));
    let odd = odd.into_iter().chain([Tried::Certificate(explicit)]);
    let odd: Vec<_> = odd.inspect(|it| assert!(it.ours().is_none(), "{}", it.line())).collect();
    tried.extend(odd);
    let [by_both, by_go] = compared(&tried);
    assert!(by_both > 500 && by_go > 50, "{by_both} {by_go}");
}

/// `check` would call it valid otherwise, and `enroll` would write it to the token.
#[test]
fn what_go_refuses_a_client_for_is_an_objection_and_nothing_else_is() {
    const UNKNOWN: &[u8] = b"\x06\x03\x2a\x03\x04";
    const CRITICAL: &[u8] = b"\x01\x01\xff";
    let (authority, key) = (key(), key());
    let mut ca = rcgen::CertificateParams::default();
    ca.distinguished_name = rcgen::DistinguishedName::new();
    ca.distinguished_name.push(rcgen::DnType::CommonName, "CA");
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = ca.self_signed(&authority).unwrap();
    let named = |tag, value| name(&[element(0x31, &[&attribute(COMMON_NAME, tag, value)])]);
    let jane = named(0x0c, b"jane");
    let usual = || Fields { name: &jane, ..Fields::default() };
    let extension = |parts: &[&[u8]]| element(0x30, parts);
    let value = element(4, &[b"\x05\x00"]);
    let signed_by = |oid: &[u8]| element(0x30, &[&element(6, &[oid])]);
    for (fields, ours, theirs) in [
        (usual(), None, None),
        (Fields { name: &named(0x13, b"A*&b (c)'+,-./:=?"), ..usual() }, None, None),
        (
            Fields { name: &named(0x13, b"jane@corp"), ..usual() },
            Some("\"jane@corp\" in a PrintableString"),
            Some("invalid PrintableString"),
        ),
        (
            Fields { serial: b"\x02\x01\xfb", ..usual() },
            Some("its serial number, which is negative"),
            Some("negative serial number"),
        ),
        (
            Fields { algorithm: &signed_by(b"\x2a\x86\x48\xce\x3d\x04\x01"), ..usual() },
            Some("its signature, which is made with SHA-1"),
            Some("insecure algorithm"),
        ),
        (
            Fields { algorithm: &signed_by(b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04"), ..usual() },
            Some("its signature, which is made with MD5"),
            Some("insecure algorithm"),
        ),
        (Fields { extensions: &[&extension(&[UNKNOWN, &value])], ..usual() }, None, None),
        // DER leaves the default out; some CAs don't.
        (
            Fields { extensions: &[&extension(&[UNKNOWN, b"\x01\x01\x00", &value])], ..usual() },
            None,
            None,
        ),
        (
            Fields { extensions: &[&extension(&[UNKNOWN, CRITICAL, &value])], ..usual() },
            Some("its critical extension 1.2.3.4, which they don't know"),
            Some("unhandled critical extension"),
        ),
    ] {
        let der = fields.signed(&authority, &key);
        let [leaf, root] = [der.as_slice(), ca.der()].map(|der| STANDARD.encode(der));
        let answer = answers_of_go(format!("client {leaf} {root}\n"));
        let answer: Option<String> = serde_json::from_str(&answer[0]).unwrap();
        assert!(
            answer.as_deref().zip(theirs).is_some_and(|(text, wanted)| text.contains(wanted))
                || answer.is_none() && theirs.is_none(),
            "{answer:?} is not {theirs:?}"
        );
        let objections = Certificate::from_der(&der, "it").unwrap().objections;
        assert!(
            objections.first().zip(ours).is_some_and(|(text, wanted)| text.ends_with(wanted))
                || objections.is_empty() && ours.is_none(),
            "{objections:?} is not {ours:?}"
        );
    }
}
