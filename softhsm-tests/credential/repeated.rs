//! A call that the plugin has answered before: the small program answers it alone, as long as nothing has changed.

use super::*;

/// A user with a copy of the two programs, of which that of the commands can be taken away.
fn user_with_copy() -> PlainUser {
    let store = cluster().token(Kind::P256, ADMINISTRATOR);
    let signer = copy_of_program(store.directory.path());
    let options = ["--pin-source=env:TOKEN_PIN", "--keep=10m"];
    PlainUser { store, number: None, signer }.written(&cluster().entry(), &options)
}

#[test]
fn a_repeated_call_is_answered_by_the_small_program_and_any_other_is_not() {
    let user = user_with_copy();
    let request = user.request().to_string();
    let certificate = |outcome: Outcome| outcome.json()["status"]["clientCertificateData"].clone();
    let first = certificate(user.plugin(&request).run());
    let commands = user.signer.with_file_name("pkcs11-external-signer-commands");
    let away = commands.with_file_name("away");
    fs::rename(&commands, &away).unwrap();
    assert_eq!(certificate(user.plugin(&request).run()), first);
    let missing = ["pkcs11-external-signer-commands can't be run"];
    user.plugin(&request).variable("LANG", "C").run().fails(126, &missing);
    let mut other = user.request();
    other["spec"]["interactive"] = true.into();
    user.plugin(&other.to_string()).run().fails(126, &missing);
    assert_eq!(user.counts(), (1, 0));
    // The key is opened anew for the same call, with the PIN.
    fs::rename(&away, &commands).unwrap();
    user.program(&["stop"]).run().succeeded();
    user.expect_nothing_left();
    let next = certificate(user.plugin(&request).run());
    assert_ne!(next, first);
    assert_eq!(user.counts(), (2, 0));
}

/// The plugin reads the cluster's CA where that is in a file.
#[test]
fn a_repeated_call_sees_a_changed_authority() {
    let user = user_with_copy();
    let mut request = user.request();
    let config = &mut request["spec"]["cluster"]["config"];
    let authority = user.path("authority.pem");
    fs::copy(config["certificate-authority"].as_str().unwrap(), &authority).unwrap();
    config["certificate-authority"] = authority.to_str().unwrap().into();
    let request = request.to_string();
    user.plugin(&request).run().succeeded();
    user.plugin(&request).run().succeeded();
    fs::write(&authority, fs::read(key(Kind::P256).certificate_pem()).unwrap()).unwrap();
    user.plugin(&request).run().fails_in_one_line(9, &["leads to cluster"]);
}
