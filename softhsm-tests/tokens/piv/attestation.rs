//! `attestation`: what the card says of the keys that were made on it.

use super::cards::{Cards, OPENSC, SLOTS, YKCS11};
use super::with_management_key;
use crate::enroll_cluster::Newcomer;
use crate::fixture::*;

/// The public key in a certificate of a file, as PEM.
fn public_key(certificate: &Path) -> Vec<u8> {
    let mut openssl = tool("openssl", "openssl");
    openssl.args(["x509", "-noout", "-pubkey", "-in"]).arg(certificate);
    openssl.output().unwrap().stdout
}

#[test]
#[ignore = "scripts/test --all"]
fn the_chain_of_each_key_is_verified_up_to_its_root() {
    let cards = Cards::inserted(1);
    let token = cards.token(YKCS11, 1);
    let module = format!("--module={}", cards.environment.variable(YKCS11));
    for (id, slot, _) in SLOTS {
        let outcome = token.command(&["attestation", &module, "--object-id", id]).run();
        let chain = cards.environment.store.path("chain.pem");
        fs::write(&chain, outcome.printed()).unwrap();
        assert_eq!(outcome.printed().matches("BEGIN CERTIFICATE").count(), 2);
        let root = cards.attestation_root(1);
        openssl([
            "verify".as_ref(),
            "-CAfile".as_ref(),
            root.as_os_str(),
            "-untrusted".as_ref(),
            chain.as_os_str(),
            chain.as_os_str(),
        ]);
        assert_eq!(public_key(&chain), public_key(&cards.key(1, slot).certificate_pem()), "{slot}");
        let policies = match slot {
            "9c" => "PIN always, touch never",
            "9e" => "PIN never, touch never",
            _ => "PIN once, touch never",
        };
        let told = format!(
            "made on YubiKey 15873456, firmware 6.6.6, slot {slot}, {policies}; the key's SHA-256 is "
        );
        assert!(outcome.stderr.contains(&told), "{}", outcome.stderr);
    }
}

/// Its own certificate isn't a user's, either.
#[test]
#[ignore = "scripts/test --all"]
fn the_key_that_attests_is_not_offered() {
    let cards = Cards::inserted(1);
    let module = format!("--module={}", cards.environment.variable(YKCS11));
    let listed = cards.token(YKCS11, 1).command(&["list", &module]).run();
    let listed = listed.silently().printed();
    assert!(listed.contains("card 1 9e"), "{listed}");
    assert!(!listed.contains("Attestation"), "{listed}");
}

#[test]
#[ignore = "scripts/test --all"]
fn a_key_without_one_is_told() {
    let cards = Cards::inserted(1);
    for (library, id) in [(OPENSC, "1"), (YKCS11, "5")] {
        let token = cards.token(library, 1);
        let module = format!("--module={}", cards.environment.variable(library));
        let serial = super::cards::serial(library, 1);
        let arguments = ["attestation", &module, "--token-serial", &serial, "--object-id", id];
        token
            .command(&arguments)
            .run()
            .fails(6, &["no attestation of the key with objectId", "Yubico's library", "imported"]);
    }
}

/// Rights that are bound to such a group are for keys that a card has made, and for no copy of one.
#[test]
#[ignore = "scripts/test --all"]
fn only_what_the_card_has_made_gets_into_the_groups_of_hardware() {
    let cards = Cards::inserted(1);
    let root = cards.attestation_root(1);
    let token = cards.token(YKCS11, 1);
    let newcomer = token.newcomer(YKCS11).attested_below(&root);
    let enroll = ["--slot=82", "--hardware-groups"];
    let name = newcomer.ask_with(&enroll, with_management_key);

    // Yubico doesn't vouch for this card, and no option makes up for that.
    for options in [&[][..], &["--despite-mismatch"]] {
        let refused = Newcomer::approve(&name, options, false);
        refused
            .fails(6, &["hardware            ✘ ", "its attestation doesn't count", "--root FILE"]);
    }
    let root = format!("--root={}", root.display());
    let approved = Newcomer::approve(&name, &[&root], true);
    approved.says(&[
        "hardware            ✔ YubiKey 15873456, firmware 6.6.6, slot 82, PIN once, touch never",
    ]);
    let enrolled = with_management_key(newcomer.enroll(&enroll)).succeeded();
    let known = enrolled.step("cluster");
    assert!(known.contains("dev, hw:attested, hw:yubikey:15873456"), "{known}");
    newcomer.stop();
}

/// As somebody asks who has the key in a file.
#[test]
#[ignore = "scripts/test --all"]
fn no_option_opens_a_group_of_hardware_to_a_key_in_a_file() {
    let cards = Cards::inserted(1);
    let token = cards.token(YKCS11, 1);
    let newcomer = token.newcomer(YKCS11);
    let group = ["--slot=82", "--group=dev", "--group=hw:attested", "--no-attestation"];
    let name = newcomer.ask_with(&group, with_management_key);
    let root = format!("--root={}", cards.attestation_root(1).display());
    let refused = Newcomer::approve(&name, &["--despite-mismatch", &root], false);
    let shown = "hardware            – nothing shows that this key is in hardware";
    refused.fails(6, &[shown, "no attestation opens the groups \"hw:attested\""]);
}
