//! tpm2-pkcs11 on a TPM in software: its own CKA_IDs, a lock that comes without a warning, and many clients of one TPM.

use super::conformance::Held;
use super::differences::assert_documented;
use super::environment::{Environment, Offer, Pair, Token, ecdsa};
use super::guide;
use super::opening::Unpadding;
use crate::enroll_cluster::Newcomer;
use crate::fixture::yubikey::{request_of, statement_bundle};
use crate::fixture::*;
use crate::kubelet::{IMAGE, asked};

const LIBRARY: &str = "TPM2_MODULE";
const VARIABLES: &[&str] = &["DBUS_SESSION_BUS_ADDRESS", "TPM2_PKCS11_STORE", "TPM2_PKCS11_TCTI"];

fn environment(pairs: impl IntoIterator<Item = Pair>) -> Environment {
    Environment::holding("tpm2", pairs, &[], &[])
}

fn token(environment: &Environment) -> Token<'_> {
    environment.token(LIBRARY, "tpm2", VARIABLES)
}

#[test]
#[ignore = "scripts/test --all"]
fn it_does_what_the_table_says() {
    assert_documented("tpm2-pkcs11", |ask| {
        ask(&token(&environment([Pair::new("01", Kind::Rsa(2048))])))
    });
}

#[test]
#[ignore = "scripts/test --all"]
fn it_conforms() {
    // The tool takes a CKA_ID for text.
    let keys = [("0x3031", Kind::Rsa(2048)), ("0x3032", Kind::P256), ("0x3033", Kind::P384)];
    let keys = keys.map(|(id, kind)| Held::new(id, kind));
    let environment = environment([keys[0].pair("01"), keys[1].pair("02"), keys[2].pair("03")]);
    let listed = "tokenLabel \"tpm2\"";
    let token = token(&environment);
    token.assert_conforms(&keys, listed, |_, scheme| match scheme {
        // A TPM has one length of salt for each hash, and none for SHA-224.
        Scheme::Pss { hash, salt } if hash == Hash::Sha224 || salt != hash.length() => {
            Offer::PaddedHere
        }
        _ => Offer::Made,
    });
    token.assert_offers_no_ed25519();
}

#[test]
#[ignore = "scripts/test --all"]
fn wrong_pins_lock_the_tpm_without_a_warning_and_are_told() {
    let environment = environment([Pair::new("01", Kind::P256)]);
    let token = token(&environment);
    let asking = token.configuration("0x3031").without("pinSource");
    let request = sign_request(&asking, &ecdsa(), &sample(32));
    let mut terminal = token.ask(&request).at_terminal();
    terminal.expect_prompt().type_line(WRONG_PIN);
    terminal.expect("the token refused the PIN").expect_prompt();
    assert_signed(&terminal.type_line(PIN).finish().0);

    let sign = || token.sign("0x3031", &ecdsa(), &sample(32));
    sign().variable("TOKEN_PIN", WRONG_PIN).run().fails(7, &["CKR_PIN_INCORRECT"]);
    // The TPM raises no flag, and still no other process sends it again.
    sign().variable("TOKEN_PIN", WRONG_PIN).run().fails(7, &["refused a PIN", "was not sent"]);

    // swtpm has three tries, and a right PIN doesn't give them back.
    let mut terminal = token.ask(&request).at_terminal();
    terminal.expect_prompt().type_line(WRONG_PIN);
    terminal.expect_prompt().type_line(WRONG_PIN);
    let remedy = "tpm2_dictionarylockout --clear-lockout";
    let (locked, _) = terminal.finish();
    locked.fails(7, &["is locked (CKR_PIN_LOCKED)", remedy]);
    let clear = Invocation::new(environment.store.directory.path())
        .program(Path::new("tpm2_dictionarylockout"))
        .argument("--clear-lockout");
    environment.enter(clear, &["DBUS_SESSION_BUS_ADDRESS", "TPM2TOOLS_TCTI"]).run().printed();
    assert_signed(&token.ask(&request).at_terminal().finish_with_pin());
    assert_signed(&sign().run());
}

#[test]
#[ignore = "scripts/test --all"]
fn a_wrong_askpass_script_costs_one_try_however_often_it_is_called() {
    let environment = environment([Pair::new("01", Kind::P256)]);
    let token = token(&environment);
    let script = environment.store.path("wrong");
    write_file(&script, format!("#!/bin/sh\necho {WRONG_PIN}\n"), 0o755);
    let asking = token.configuration("0x3031").with("pinSource", "askpass");
    let request = sign_request(&asking, &ecdsa(), &sample(32));
    for _ in 0..10 {
        let called = token.ask(&request).variable("PKCS11_EXTERNAL_SIGNER_ASKPASS", &script);
        called.run().fails(7, &["refused"]);
    }
    // swtpm has three tries: with one more wrong one there is still one left.
    let prompted = token.configuration("0x3031").without("pinSource");
    let request = sign_request(&prompted, &ecdsa(), &sample(32));
    let mut terminal = token.ask(&request).at_terminal();
    terminal.expect_prompt().type_line(WRONG_PIN);
    assert_signed(&terminal.expect_prompt().type_line(PIN).finish().0);
}

#[test]
#[ignore = "scripts/test --all"]
fn a_key_is_made_and_certified_as_the_guide_says() {
    let environment = environment([Pair::new("02", Kind::P256)]);
    let [make] = &blocks_of("docs/tpm.md", "Setting it up", "sh")[..] else {
        panic!("another number of blocks")
    };
    let store = &environment.store;
    let run = |block: &str| {
        let invocation = guide::follow(store, block)
            .variable("PIN", PIN)
            .variable("SO_PIN", "security-officer")
            .variable("PYTHONWARNINGS", "ignore");
        let variables = [VARIABLES, &["TPM2TOOLS_TCTI"]].concat();
        guide::typing(environment.enter(invocation, &variables), block, PIN)
    };
    run(make);
    let enroll = format!(
        "pkcs11-external-signer enroll --module {} --token-label kubernetes",
        environment.variable(LIBRARY)
    );
    run(&format!("{enroll} --user jane --csr jane.csr"));
    guide::issue(store);
    run(&format!("{enroll} --certificate jane.pem"));
    environment.token(LIBRARY, "kubernetes", VARIABLES).assert_kubectl_gets("1");
}

/// Every token of a TPM has the serial number 0000000000000000.
#[test]
#[ignore = "scripts/test --all"]
fn a_kubeconfig_names_the_token_by_its_label_where_the_serial_is_shared() {
    let environment = environment([Pair::new("01", Kind::P256)]);
    let token = token(&environment);
    let module = format!("--module={}", environment.variable(LIBRARY));
    let kubeconfig = |label: &[&str]| {
        let arguments = ["kubeconfig", "--external-signer", &module];
        token.command(&arguments).arguments(label).run().printed()
    };
    let alone = kubeconfig(&[]);
    assert!(alone.contains("tokenSerial: \"0000000000000000\""), "{alone}");
    let add = Invocation::new(environment.store.directory.path())
        .program(Path::new("tpm2_ptool"))
        .arguments(&["addtoken", "--pid=1", "--label=second", "--sopin=so", "--userpin=user"])
        .arguments(&["--path", environment.variable("TPM2_PKCS11_STORE")]);
    environment.enter(add, &["DBUS_SESSION_BUS_ADDRESS", "TPM2TOOLS_TCTI"]).run().printed();
    let beside_another = kubeconfig(&["--token-label=tpm2"]);
    assert!(beside_another.contains("tokenLabel: tpm2"), "{beside_another}");
}

#[test]
#[ignore = "scripts/test --all"]
fn a_tpm_that_cannot_be_reached_is_told() {
    let environment = environment([Pair::new("01", Kind::P256)]);
    let token = token(&environment);
    for (name, value) in [
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere"),
        ("TPM2_PKCS11_TCTI", "device:/nowhere"),
        ("TPM2_PKCS11_STORE", "/nowhere"),
    ] {
        let outcome = token.certificate("0x3031").variable(name, value).run();
        outcome.fails(4, &["C_Initialize: CKR_GENERAL_ERROR", "tpm2-abrmd"]);
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn keys_are_made_and_certified_by_enroll() {
    let environment = environment([Pair::new("09", Kind::P256)]);
    token(&environment).assert_enrolls(LIBRARY, "tpm2", &["ec-p256", "ec-p384", "rsa-2048"]);
}

#[test]
#[ignore = "scripts/test --all"]
fn a_cluster_issues_the_certificate_of_a_new_key() {
    let environment = environment([Pair::new("09", Kind::P256)]);
    let token = token(&environment);
    let newcomer = token.newcomer(LIBRARY);
    newcomer.assert_enrolls(&[], &[], Invocation::run);
    newcomer.assert_changes_key();
}

#[test]
#[ignore = "scripts/test --all"]
fn sealed_files_are_opened() {
    let environment = environment(
        [("01", Kind::Rsa(2048)), ("02", Kind::P256)].map(|(id, kind)| Pair::new(id, kind)),
    );
    let token = token(&environment);
    let kind = Kind::Rsa(2048);
    token.assert_opens(&key(kind).certificate_pem(), kind, Unpadding::Tokens);
    // Before 1.9.1 it has no ECDH.
    for file in token.sealed(&key(Kind::P256).certificate_pem(), Kind::P256) {
        asked(token.provider(&file), IMAGE).fails_in_one_line(8, &["its CKA_DERIVE is false"]);
    }
}

#[test]
#[ignore = "scripts/test --all"]
fn keys_for_unsealing_are_made_by_enroll() {
    let environment = environment([Pair::new("09", Kind::P256)]);
    token(&environment).assert_enrolls_for_unsealing(&[("rsa-2048", Kind::Rsa(2048))]);
}

/// As docs/tpm.md has it; and an imported key, which a TPM certifies just as willingly.
#[test]
#[ignore = "scripts/test --all"]
fn only_a_key_that_the_tpm_made_gets_into_the_groups_of_hardware() {
    let environment = environment([Pair::new("09", Kind::P256)]);
    let token = token(&environment);
    let store = &environment.store;
    let heading = "Only keys that a TPM made";
    let [trust, ask] = &blocks_of("docs/tpm.md", heading, "sh")[..] else {
        panic!("another number of blocks")
    };
    let run = |block: &str| {
        let variables = [VARIABLES, &["TPM2TOOLS_TCTI"]].concat();
        let script = Invocation::new(store.directory.path())
            .variable("PIN", PIN)
            .variable("PYTHONWARNINGS", "ignore")
            .within("bash", &format!("set -eu\ncd {}\n{block}", store.directory.path().display()));
        environment.enter(script, &variables).run().succeeded()
    };
    run(trust);
    let attest = ask.lines().find(|line| line.starts_with("scripts/tpm-attest ")).unwrap();
    let attest = attest.split("  #").next().unwrap();
    let program = format!("'{}'", at_root("scripts/tpm-attest").display());
    // The attestation of the key with this label, in a file of this name.
    let attest = |label: &str, file: &str| {
        run(&adapted(
            attest,
            &[
                ["scripts/tpm-attest", &program],
                ["kubernetes jane", &format!("tpm2 '{label}'")],
                ["attestation.pem", file],
            ],
        ));
        store.path(file)
    };

    let module = format!("--module={}", environment.variable(LIBRARY));
    let csr = store.path("toni.csr").display().to_string();
    let make = ["enroll", &module, "--pin-source=env:TOKEN_PIN", "--user=toni", "--csr", &csr];
    token.command(&make).run().succeeded();
    let made = attest("toni", "made.pem");
    let imported = attest("key 09", "imported.pem");

    let policy = blocks_of("docs/policy.md", "Other devices than YubiKeys", "yaml").remove(0);
    let policy = format!(
        "apiVersion: pkcs11-external-signer/v1alpha1\nkind: ApprovalPolicy\n{}",
        adapted(&policy, &[["name: eve", "name: toni"]])
    );
    fs::copy(at_root("scripts/tpm-verify"), store.path("tpm-verify")).unwrap();
    fs::write(store.path("policy.yaml"), &policy).unwrap();
    let option = format!("--policy={}", store.path("policy.yaml").display());

    let newcomer = Newcomer::named("toni", vec![module.clone()], |invocation| {
        environment.enter(invocation.variable("TOKEN_PIN", PIN), VARIABLES)
    });
    let requester = "--clusterrole=certificate-requester";
    let binding = ["create", "clusterrolebinding", "toni", requester, "--user=toni"];
    cluster().administrate(&binding, "");
    cluster().wait_for_right(&["create", "certificatesigningrequests", "--as=toni"]);
    let file = format!("--attestation={}", made.display());
    let enroll = ["--hardware-groups", &*file];
    let name = newcomer.ask_with(&enroll, Invocation::run);
    let approved = Newcomer::approve(&name, &[&option], true);
    let claims = "laptop-17: made in its TPM, can't leave it, says tpm-verify";
    approved.says(&[&format!("hardware            ✔ {claims}\n")]);
    let enrolled = newcomer.enroll(&enroll).run().succeeded();
    let disclosed = enrolled.step("attestation");
    assert!(disclosed.contains("a statement of type 2.23.133.20.1 and "), "{disclosed}");
    let known = enrolled.step("cluster");
    assert!(known.contains("dev, hw:attested"), "{known}");
    newcomer.stop();

    let toni = cluster().person("toni", &["dev", REQUESTERS]);
    let statement = |file: &Path| {
        let pem = fs::read_to_string(file).unwrap();
        let lines = pem.lines().filter(|line| !line.starts_with('-'));
        STANDARD.decode(lines.collect::<String>()).unwrap()
    };
    let refused = |name: &str, key: &rcgen::KeyPair, file: &Path, reason: &str| {
        let attribute = statement_bundle(&statement(file));
        let request = request_of("toni", key, &["dev", "hw:attested"], &[&attribute]);
        toni.asks_by(name, &Wanted::default(), &request);
        Newcomer::approve(name, &["--despite-mismatch", &option], false).fails(6, &[reason]);
        assert!(cluster().conditions(name).is_empty(), "{name}");
    };
    let copied = rcgen::KeyPair::try_from(key(Kind::P256).pkcs8.as_slice()).unwrap();
    let reason = "the key was not made in the TPM, or can leave it: fixedTPM is not set";
    refused("tpm-imported", &copied, &imported, reason);
    refused("tpm-of-another", &copied, &made, "this is about another key than the request's");
    fs::rename(store.path("attestation-keys"), store.path("other-keys")).unwrap();
    fs::create_dir(store.path("attestation-keys")).unwrap();
    refused("tpm-unknown", &copied, &imported, "no attestation key that is known has signed this");
}
