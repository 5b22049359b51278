//! A certificate that is renewed while its key is open in the tunnel process.

use rcgen::ExtendedKeyUsagePurpose::ClientAuth;

use super::PlainUser;
use crate::fixture::*;

#[test]
fn the_open_key_gets_its_new_certificate_without_a_pin() {
    let store = token_with([Object::key(key(Kind::P256), &[1])]);
    let file = store.path("certificate");
    let left = time::Duration::seconds(30);
    fs::write(&file, expiring(Kind::P256, "jane", left, ClientAuth, cluster().authority()))
        .unwrap();
    let end = Instant::now() + Duration::from_secs(31);
    let file_option = format!("--certificate-file={}", file.display());
    let options =
        ["--keep=15m", "--pin-source=env:TOKEN_PIN", "--login", "--object-id=1", &file_option];
    let user = PlainUser::of(store, &options);
    let whoami = ["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"];
    assert_eq!(user.kubectl(&whoami).run().printed_beside(&["renew it"]), "jane");
    fs::write(&file, cluster().issue(Kind::P256, JANE)).unwrap();
    wait_until("the first certificate has ended", || Instant::now() > end);
    let second = user.kubectl(&whoami).variable("TOKEN_PIN", WRONG_PIN).run();
    assert_eq!(second.printed(), "jane");
    assert_eq!(user.store.calls("C_Login"), ["0x0"]);
    user.program(&["stop"]).run().printed();
}
