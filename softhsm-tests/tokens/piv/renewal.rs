//! `renew` on a card, whose slot has one certificate: the present one stays until the cluster has let the new
//! one in and a person has given the management key.

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;
use rcgen::{PKCS_RSA_SHA256, PublicKeyData, SignatureAlgorithm};
use x509_parser::parse_x509_certificate;

use super::cards::{Cards, YKCS11};
use crate::fixture::*;

/// The public half of a card's key.
struct RsaKey(Vec<u8>);

impl RsaKey {
    fn of(certificate: &[u8]) -> Self {
        let (_, certificate) = parse_x509_certificate(certificate).unwrap();
        Self(certificate.public_key().subject_public_key.data.to_vec())
    }
}

impl PublicKeyData for RsaKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_RSA_SHA256
    }
}

fn renew(cards: &Cards, arguments: &[&str]) -> Invocation {
    let configuration = cards.token(YKCS11, 1).configuration("1");
    let store = &cards.environment.store;
    let command = cluster().command(store, &configuration, "renew");
    cards.enter(command.argument("--duration=1h").arguments(arguments))
}

/// The credential-id of the certificate in slot 9a.
fn certificate(cards: &Cards) -> String {
    let module = format!("--module={}", cards.environment.variable(YKCS11));
    let keys = cards.token(YKCS11, 1).command(&["list", "--json", &module]).run().keys();
    let key = keys.iter().find(|key| key["objectId"] == "1").unwrap();
    key["certificate"]["credentialId"].as_str().unwrap().to_owned()
}

/// A card whose certificate in slot 9a is jane's and valid for minutes.
fn janes_card() -> Cards {
    let cards = Cards::issued_by(cluster().authority());
    let certificate_of_jane = expiring_for(
        &RsaKey::of(&cards.key(1, "9a").certificate),
        "jane",
        time::Duration::minutes(9),
        ClientAuth,
        cluster().authority(),
    );
    cards.certify("9a", &certificate_of_jane);
    cards
}

#[test]
#[ignore = "scripts/test --all"]
fn the_slots_certificate_is_replaced_when_the_cluster_has_let_its_successor_in() {
    let cards = janes_card();
    let store = &cards.environment.store;
    let before = certificate(&cards);
    let asked = renew(&cards, &["--wait=1s"]).run();
    asked.fails(9, &["was not approved within 1 seconds"]);
    let (_, name) = asked.stderr.split_once(" approve ").unwrap();
    let name = name.split_whitespace().next().unwrap();
    let approve = cluster().administrator(store);
    approve.arguments(&["certificate", "approve", name]).run().printed();
    // Let in, and nobody to give the management key.
    let unattended = renew(&cards, &[]).run();
    let told = [
        "wants its management key, which only a person gives",
        "the cluster has let the new certificate in; it stays in ",
    ];
    unattended.fails(7, &told);
    assert_eq!(certificate(&cards), before);
    let (_, kept) = unattended.stderr.split_once("it stays in ").unwrap();
    let kept = Path::new(kept.lines().next().unwrap());
    // Where the program's data is its own.
    let data = store.path("data");
    let kept = match data.is_dir() {
        true => data.join(kept.file_name().unwrap()),
        false => kept.to_owned(),
    };
    assert!(kept.exists(), "{}", kept.display());
    let mut terminal = renew(&cards, &[]).at_terminal();
    terminal.expect("management key (48 hexadecimal digits").type_line("default");
    let (outcome, screen) = terminal.finish();
    assert!(outcome.status.success(), "{screen}\n{outcome:?}");
    let after = certificate(&cards);
    assert_ne!(after, before);
    let printed = outcome.shown();
    assert!(printed.contains(&after), "{printed}");
    assert!(printed.contains("knows us as user \"jane\""), "{printed}");
    assert!(!kept.exists(), "{}", kept.display());
}
