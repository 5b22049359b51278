//! `enroll --attestation FILE`: what `ykman piv keys attest` has written, for a token whose library gives no attestation.

use rcgen::KeyPair;

use super::{Newcomer, of_store};
use crate::fixture::der::certificates_pem;
use crate::fixture::yubikey::{self, Device, claims};
use crate::fixture::*;

#[test]
fn what_ykman_has_written_of_the_key_is_sent_and_of_another_key_nothing_is() {
    let pair = key(Kind::P384);
    let objects = [Object::key(pair, &[1]), Object::public_key(pair, &[1])];
    let store = Store::new([blueprint("prod", objects.map(|it| it.labelled("ada")))]);
    let (token, enter) = of_store(&store);
    // Not jane, for whom other tests have a certificate of this key.
    let newcomer = Newcomer::named("ada", token, enter);
    let requester = "--clusterrole=certificate-requester";
    let binding = ["create", "clusterrolebinding", "attested", requester, "--user=ada"];
    cluster().administrate(&binding, "");
    cluster().wait_for_right(&["create", "certificatesigningrequests", "--as=ada"]);
    let device = Device::new();
    let slot_key = KeyPair::try_from(pair.pkcs8.as_slice()).unwrap();
    let attestation = device.attest(&slot_key, claims());
    let written = |name: &str, certificates: &[Vec<u8>]| {
        fs::write(store.path(name), certificates_pem(certificates)).unwrap();
        format!("--attestation={}", store.path(name).display())
    };
    let others = device.attest(&yubikey::key(), claims());
    let others = written("others.pem", &[others, device.certificate()]);
    let device_alone = written("device.pem", &[device.certificate()]);
    let twice = written("twice.pem", &[attestation.clone(), attestation.clone()]);
    fs::write(store.path("none.pem"), "no certificate").unwrap();
    let none = format!("--attestation={}", store.path("none.pem").display());
    for (file, reason) in [
        (others, "is about another key than the request's"),
        (device_alone, "it has 0 attestations, and one is wanted"),
        (twice, "it has 2 attestations, and one is wanted"),
        (none, "it has no CERTIFICATE in PEM"),
        ("--attestation=missing.pem".to_owned(), "missing.pem: No such file"),
    ] {
        let refused = newcomer.enroll(&["--wait=1s", &file]).run();
        refused.fails(6, &[reason]);
        assert!(!refused.stderr.contains("waiting for the approval"), "{refused:?}");
    }

    let alone = written("alone.pem", std::slice::from_ref(&attestation));
    let warned = newcomer.enroll(&["--wait=1s", &alone]).run();
    warned.fails(9, &["alone.pem has no certificate of the device", "export f9 -"]);

    let file = written("attestation.pem", &[attestation, device.certificate()]);
    let asked = newcomer.enroll(&["--wait=1s", "--again", "--hardware-groups", &file]).run();
    let told = asked.step("attestation");
    assert!(told.contains("YubiKey 15873456") && told.contains("attestation.pem has it"), "{told}");
    let (_, name) = asked.stderr.split_once(" approve ").unwrap();
    let name = name.split_whitespace().next().unwrap();
    let root = store.path("root.pem");
    fs::write(&root, device.root_pem()).unwrap();
    let root = format!("--root={}", root.display());
    let approved = Newcomer::approve(name, &[&root], true);
    approved.says(&[
        "hardware            ✔ YubiKey 15873456, firmware 5.7.4, slot 9a, PIN once, touch never",
    ]);
    let enrolled = newcomer.enroll(&["--hardware-groups", &file]).run().succeeded();
    let known = enrolled.step("cluster");
    assert!(known.contains("dev, hw:attested, hw:yubikey:15873456"), "{known}");
    newcomer.stop();
}
