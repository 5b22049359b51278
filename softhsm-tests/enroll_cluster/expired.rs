//! The certificate of a context's key has expired: what is said before a PIN is asked for, and the one command that
//! mends it.

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;

use super::{Newcomer, of_store};
use crate::fixture::*;

#[test]
fn an_expired_certificate_is_told_before_the_pin_and_replaced_by_one_command() {
    let pair = key(Kind::P256);
    let minute = time::Duration::MINUTE;
    let expired = expiring(Kind::P256, "erin", -minute, ClientAuth, cluster().authority());
    let objects = [
        Object::key(pair, &[1]).labelled("erin"),
        Object::public_key(pair, &[1]).labelled("erin"),
        Object::issued(expired.clone(), &[1]).labelled("erin"),
    ];
    let store = Store::new([blueprint("prod", objects)]);
    let (token, enter) = of_store(&store);
    let person = cluster().person("erin", &[REQUESTERS]);
    let erin = Newcomer { person, token, enter: Box::new(enter), approval: Vec::new() };
    // The request that it came from is still there, as after `kubeconfig --undo`.
    let old = erin.ask(&[]);
    cluster().answer(&old, &expired);
    assert_eq!(erin.ask(&[]), format!("{old}-2"));

    let command = |name: &str, arguments: &[&str]| {
        erin.enter(erin.person.command(name)).argument("--context=prod").arguments(arguments).run()
    };
    command("kubeconfig", &["--write", "--object-id=1", &erin.token[0]]).succeeded();
    let told = ["the certificate of CN=erin: it expired 20", " enroll --context=prod`"];
    let kubectl = erin.enter(erin.person.kubectl()).arguments(&["auth", "whoami"]).run();
    kubectl.says(&told);
    assert!(!kubectl.stderr.contains("PIN"), "{kubectl:?}");
    let renewed = command("renew", &[]);
    assert!(!renewed.fails(6, &told).stderr.contains("PIN"), "{renewed:?}");
    let checked = command("check", &["--server"]).told(6);
    assert!(told.iter().all(|it| checked.contains(it)), "{checked}");

    // For another group than that of the certificate is what was asked for above.
    let name = erin.ask(&["--context=prod", "--again"]);
    assert_eq!(name, format!("{old}-3"));
    cluster().administrate(&["certificate", "approve", &name], "");
    let renewed = erin.enroll(&["--context=prod"]).run();
    renewed.says(&[told[0], "is asked for by user \"jane\", which context \"prod\" had before"]);
    let printed = renewed.printed();
    let known = "knows us as user \"erin\", groups system:authenticated";
    assert!(step_of(&printed, "cluster").ends_with(known), "{printed}");
    // The old certificate stays beside the new one.
    let keys = erin.keys();
    let new = keys.iter().find(|key| key["usable"] == true).unwrap();
    assert!(erin.whoami().contains(new["certificate"]["credentialId"].as_str().unwrap()));
    erin.stop();
}
