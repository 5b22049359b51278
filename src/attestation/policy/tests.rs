//! What policies allow, and which files are none.

use messages::error::Exit;

use super::*;
use crate::yubikey::YubiKeyClaims;

const POLICY: &str = "\
apiVersion: pkcs11-external-signer/v1alpha1
kind: ApprovalPolicy
require:
  minFirmware: 5.7.0
  pinPolicies: [once, always]
  touchPolicies:
  - always
  - cached
  slots: [9a, 82]
maxLifetime: 8h
users:
- name: jane
  serialNumbers: [15873456, 15873457]
  groups: [dev, ops]
- name: joe
  serialNumbers: [15873458]
- name: ann
  serialNumbers: [15873456]
  require: {touchPolicies: [always]}
";

const NO_DURATION: &str =
    "line 10 (maxLifetime): it is not a duration in w, d, h, m and s, such as 8h or 90d";

fn policy(text: &str) -> Policy {
    Policy::from_yaml(text.as_bytes(), "the file").unwrap_or_else(|error| panic!("{error}"))
}

/// What a YubiKey says of a key that the policy allows for jane.
fn yubikey() -> YubiKeyClaims {
    YubiKeyClaims {
        serial_number: SerialNumber(15_873_456),
        firmware: Firmware { major: 5, minor: 7, patch: 0 },
        slot: Slot::from_name("9a").unwrap(),
        pin_policy: PinPolicy::Once,
        touch_policy: TouchPolicy::Cached,
        form_factor: None,
        is_fips_certified: false,
        is_cspn_certified: false,
    }
}

fn claims() -> Claims {
    Claims::YubiKey(yubikey())
}

/// What a verifier says of a key in this device.
fn in_device(device: &str) -> Claims {
    Claims::Device(DeviceClaims {
        device: device.to_owned(),
        claims: vec!["made there".to_owned()],
        verifier: "verify".to_owned(),
        verifier_sha256: "0f5a".to_owned(),
    })
}

/// What the policy says of a request that the user makes, a line each.
fn told(
    user: Option<&str>,
    groups: &[&str],
    seconds: Option<i64>,
    claims: Option<&Claims>,
) -> Vec<String> {
    let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
    let requester = user.unwrap_or_default();
    let asked = Asked { requester, user, groups: &groups, seconds, claims };
    policy(POLICY).objections(&asked).iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_allowed_is_not_objected_to() {
    let claims = claims();
    for (groups, seconds) in [
        (&[][..], 600),
        (&["dev"], 28_800),
        (&["ops", "dev", "hw:attested", "hw:yubikey:15873456"], 28_800),
    ] {
        let told = told(Some("jane"), groups, Some(seconds), Some(&claims));
        assert_eq!(told, [""; 0], "{groups:?}");
    }
}

#[test]
fn who_and_what_is_asked_for_is_held_against_its_line() {
    let claims = claims();
    let proven = Some(&claims);
    let hour = Some(3_600);
    for (user, groups, seconds, claims, expected) in [
        (
            Some("mallory"),
            &["dev"][..],
            hour,
            proven,
            "line 12 (users): user \"mallory\" is none of these",
        ),
        (Some("Jane"), &[], hour, proven, "line 12 (users): user \"Jane\" is none of these"),
        (None, &[], hour, proven, "line 12 (users): the request names no user"),
        (
            Some("jane"),
            &["dev"],
            hour,
            None,
            "line 13 (users[0].serialNumbers): nothing shows that the key is in one of these",
        ),
        (
            Some("joe"),
            &[],
            hour,
            proven,
            "line 16 (users[1].serialNumbers): the key is in YubiKey 15873456, which is none of these",
        ),
        (
            Some("jane"),
            &["dev", "admins", "hw:yubikey:15873457"],
            hour,
            proven,
            "line 14 (users[0].groups): the request is also for \"admins\", \"hw:yubikey:15873457\"",
        ),
        (
            Some("ann"),
            &["dev"],
            hour,
            proven,
            "line 17 (users[2].name): the user has no groups, and wants \"dev\"",
        ),
        (
            Some("jane"),
            &[],
            Some(28_801),
            proven,
            "line 10 (maxLifetime): the request is for longer than 8h",
        ),
        (
            Some("jane"),
            &[],
            Some(-1),
            proven,
            "line 10 (maxLifetime): the request is for longer than 8h",
        ),
        (
            Some("jane"),
            &[],
            None,
            proven,
            "line 10 (maxLifetime): the request leaves its time to the signer; `enroll --duration 8h` does not",
        ),
    ] {
        let told = told(user, groups, seconds, claims);
        // Of ann the touch policy is refused, too.
        assert_eq!(told.last().map(String::as_str), Some(expected), "{told:?}");
    }
}

#[test]
fn how_the_key_is_kept_is_held_against_its_line() {
    let older = Firmware { major: 5, minor: 4, patch: 3 };
    for (claims, expected) in [
        (
            YubiKeyClaims { firmware: older, ..yubikey() },
            "line 4 (require.minFirmware): the YubiKey's firmware is older: 5.4.3",
        ),
        (
            YubiKeyClaims { pin_policy: PinPolicy::Never, ..yubikey() },
            "line 5 (require.pinPolicies): the key has PIN never",
        ),
        (
            YubiKeyClaims { pin_policy: PinPolicy::MatchOnce, ..yubikey() },
            "line 5 (require.pinPolicies): the key has fingerprint or PIN once",
        ),
        (
            YubiKeyClaims { touch_policy: TouchPolicy::Never, ..yubikey() },
            "line 7 (require.touchPolicies): the key has touch never",
        ),
        (
            YubiKeyClaims { slot: Slot::from_name("9e").unwrap(), ..yubikey() },
            "line 9 (require.slots): the key has slot 9e",
        ),
    ] {
        let claims = Claims::YubiKey(claims);
        assert_eq!(told(Some("jane"), &[], Some(600), Some(&claims)), [expected]);
    }
}

#[test]
fn a_users_own_requirement_is_another_one() {
    let expected = "line 19 (users[2].require.touchPolicies): the key has touch cached";
    assert_eq!(told(Some("ann"), &[], Some(600), Some(&claims())), [expected]);
    let always = YubiKeyClaims { touch_policy: TouchPolicy::Always, ..yubikey() };
    assert_eq!(told(Some("ann"), &[], Some(600), Some(&Claims::YubiKey(always))), [""; 0]);
}

#[test]
fn an_older_firmware_is_refused_and_a_newer_one_is_not() {
    let told = |[major, minor, patch]: [u8; 3]| {
        let claims = YubiKeyClaims { firmware: Firmware { major, minor, patch }, ..yubikey() };
        told(Some("jane"), &[], Some(600), Some(&Claims::YubiKey(claims)))
    };
    for allowed in [[5, 7, 0], [5, 7, 4], [6, 0, 0]] {
        assert_eq!(told(allowed), [""; 0]);
    }
    let expected = "line 4 (require.minFirmware): the YubiKey's firmware is older: 5.6.9";
    assert_eq!(told([5, 6, 9]), [expected]);
}

/// A laptop with a TPM, say, beside the YubiKeys.
#[test]
fn a_users_key_may_be_in_a_device_that_the_verifier_names() {
    let policy = policy(&format!(
        "verifier: [bin/verify, --keys, keys]\n{POLICY}- name: eve\n  devices: [laptop-17]\n"
    ));
    // Of others' devices the verifier isn't even asked.
    let asked = ["jane", "eve", "mallory"].map(|user| policy.has_device_for(user));
    assert_eq!(asked, [false, true, false]);
    assert_eq!(policy.user_count(), 4);
    let verifier = policy.verifier.as_ref().unwrap();
    assert_eq!((verifier.program.as_str(), verifier.arguments.len()), ("bin/verify", 2));
    let told = |user: &str, claims: Option<&Claims>| {
        let groups = ["hw:attested", "hw:device:laptop-17"].map(str::to_owned);
        let groups = &groups[..if claims == Some(&in_device("laptop-17")) { 2 } else { 0 }];
        let seconds = Some(600);
        let asked = Asked { requester: user, user: Some(user), groups, seconds, claims };
        policy.objections(&asked).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(told("eve", Some(&in_device("laptop-17"))), [""; 0]);
    let place = "line 22 (users[3].devices):";
    for (claims, reason) in [
        (None, "nothing shows that the key is in one of these"),
        (Some(in_device("laptop-18")), "the key is in laptop-18, which is none of these"),
        (Some(claims()), "the key is in YubiKey 15873456, which is none of these"),
    ] {
        assert_eq!(told("eve", claims.as_ref()), [format!("{place} {reason}")]);
    }
    assert_eq!(
        told("jane", Some(&in_device("laptop-17"))),
        ["line 14 (users[0].serialNumbers): the key is in laptop-17, which is none of these"]
    );
}

/// Such as jane for jane-writes, and nobody else.
#[test]
fn who_makes_a_users_requests_can_be_said() {
    let text = POLICY.replace("- name: joe\n", "- name: joe\n  requester: jane\n");
    let policy = policy(&text);
    assert!(policy.has_requester("joe", "jane") && !policy.has_requester("joe", "mallory"));
    assert!(!policy.has_requester("jane", "jane") && !policy.has_requester("eve", "jane"));
    let told = |requester: &str| {
        let claims =
            Claims::YubiKey(YubiKeyClaims { serial_number: SerialNumber(15_873_458), ..yubikey() });
        let asked = Asked {
            requester,
            user: Some("joe"),
            groups: &[],
            seconds: Some(600),
            claims: Some(&claims),
        };
        policy.objections(&asked).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // The user's own requests are for a new certificate of the key that they have.
    for allowed in ["jane", "joe"] {
        assert_eq!(told(allowed), [""; 0]);
    }
    let expected = "line 16 (users[1].requester): the request is made by \"mallory\"";
    assert_eq!(told("mallory"), [expected]);
}

#[test]
fn everything_that_is_not_allowed_is_told() {
    let claims = YubiKeyClaims {
        serial_number: SerialNumber(1),
        pin_policy: PinPolicy::Never,
        touch_policy: TouchPolicy::Never,
        ..yubikey()
    };
    assert_eq!(told(Some("jane"), &["x"], None, Some(&Claims::YubiKey(claims))).len(), 5);
}

#[test]
fn a_policy_is_known_by_its_hash_and_has_yubicos_roots_unless_it_names_others() {
    let known = policy(POLICY);
    assert_eq!(known.sha256.len(), 64);
    assert_ne!(known.sha256, policy(&format!("{POLICY}\n# changed")).sha256);
    let yubico = Roots::yubico().unwrap().anchors.len();
    assert_eq!(known.roots.anchors.len(), yubico);
    let pem = include_str!("../roots/yubico-piv-root-263751.pem");
    let indented: String = pem.lines().map(|line| format!("    {line}\n")).collect();
    let with = |roots: &str| policy(&format!("{POLICY}roots:\n{roots}")).roots.anchors.len();
    assert_eq!(with("- yubico"), yubico);
    assert_eq!(with(&format!("  - |\n{indented}")), 1);
    assert_eq!(with(&format!("  - |\n{indented}  - yubico")), yubico + 1);
    assert_eq!(with("  []"), 0);
}

#[test]
fn a_file_that_is_no_policy_is_refused_at_its_line() {
    let replaced = |old: &str, new: &str| {
        assert!(POLICY.contains(old), "{old}");
        POLICY.replacen(old, new, 1)
    };
    for (text, expected) in [
        (
            replaced("v1alpha1", "v2"),
            "line 1 (apiVersion): \"pkcs11-external-signer/v2\" is not pkcs11-external-signer/v1alpha1",
        ),
        (replaced("ApprovalPolicy", "Policy"), "line 2 (kind): \"Policy\" is not ApprovalPolicy"),
        (
            replaced("minFirmware", "minFirmwre"),
            "line 4: unknown field \"minFirmwre\"; the known ones are minFirmware, pinPolicies, touchPolicies, slots",
        ),
        (
            replaced("  groups:", "  grops:"),
            "line 14: unknown field \"grops\"; the known ones are name, requester, serialNumbers, devices, groups, require",
        ),
        (
            replaced("slots: [9a, 82]", "minFirmware: 5.4.0"),
            "line 9: field \"minFirmware\" is there twice",
        ),
        (
            replaced("  serialNumbers: [15873458]\n", ""),
            "line 15 (users[1].name): neither serialNumbers nor devices says where the user's key may be",
        ),
        (
            replaced("  serialNumbers: [15873458]", "  devices: [laptop-17]"),
            "line 16 (users[1].devices): without a verifier no key can be shown to be in a device",
        ),
        (
            format!(
                "verifier: [./verify]\n{}",
                replaced("serialNumbers: [15873458]", "devices: [a b]")
            ),
            "line 17 (users[1].devices): \"a b\" is not 1 to 64 letters, digits, '.', '_' and '-'",
        ),
        (
            format!(
                "verifier: [./verify]\n{POLICY}- name: eve\n  devices: [tpm]\n  require: {{slots: [9a]}}\n"
            ),
            "line 23 (users[3].require): it is about YubiKeys, and the user has no serialNumbers",
        ),
        (format!("{POLICY}verifier: []\n"), "line 20 (verifier): it names no program"),
        (format!("{POLICY}verifier: ['']\n"), "line 20 (verifier): it names no program"),
        (format!("{POLICY}verifier: ./verify\n"), "line 20: this can't be read"),
        (
            replaced("5.7.0", "5.7"),
            "line 4 (require.minFirmware): \"5.7\" is not a firmware version such as 5.7.4",
        ),
        (
            replaced("5.7.0", "05.7.0"),
            "line 4 (require.minFirmware): \"05.7.0\" is not a firmware version such as 5.7.4",
        ),
        (
            replaced("5.7.0", "5.7.256"),
            "line 4 (require.minFirmware): \"5.7.256\" is not a firmware version such as 5.7.4",
        ),
        (
            replaced("once, always", "once, often"),
            "line 5 (require.pinPolicies): \"often\" is not one of never, once, always, matchOnce and matchAlways",
        ),
        (
            replaced("- cached", "- sometimes"),
            "line 8 (require.touchPolicies): \"sometimes\" is not one of never, always and cached",
        ),
        (
            replaced("[9a, 82]", "[9a, f9]"),
            "line 9 (require.slots): \"f9\" is not one of 9a, 9c, 9d, 9e and 82 to 95",
        ),
        (replaced("8h", "8"), NO_DURATION),
        (
            replaced("name: joe", "name: jane"),
            "line 15 (users[1].name): user \"jane\" is there twice",
        ),
        (replaced("15873458", "no"), "line 16: this can't be read, or something else belongs here"),
        (
            replaced("[15873458]", "15873458"),
            "line 16: this can't be read, or something else belongs here",
        ),
        (replaced("8h", "<<"), NO_DURATION),
        // A month, or a minute that was meant?
        (replaced("8h", "1M"), NO_DURATION),
        (replaced("8h", "1y"), NO_DURATION),
        (replaced("8h", "2months"), NO_DURATION),
        (format!("{POLICY}---\nkind: other\n"), "this can't be read"),
        (
            format!("{POLICY}roots: [company]\n"),
            "line 20 (roots[0]), has no usable roots: it has no CERTIFICATE in PEM",
        ),
        (String::new(), "is not a valid policy"),
        ("\u{1b}[2J: 1".to_owned(), "is not a valid policy"),
    ] {
        let error = Policy::from_yaml(text.as_bytes(), "the file").unwrap_err();
        assert!(error.to_string().contains(expected), "{error}\n{expected}");
        assert!(error.to_string().starts_with("the file"), "{error}");
        assert!(error.exits_with(Exit::Configuration), "{error}");
    }
    let error = Policy::from_yaml(b"\xff", "the file").unwrap_err();
    assert_eq!(error.to_string(), "the file is not a valid policy: it is not UTF-8");
}

/// A rule whose list was emptied, perhaps by comments, is no rule less.
#[test]
fn a_field_with_nothing_behind_it_is_none_that_was_left_out() {
    let lists = "  touchPolicies:\n  - always\n  - cached\n";
    let none = policy(&POLICY.replace(lists, "  touchPolicies: []\n"));
    let claims = claims();
    let asked = Asked {
        requester: "jane",
        user: Some("jane"),
        groups: &[],
        seconds: Some(600),
        claims: Some(&claims),
    };
    assert_eq!(none.objections(&asked).len(), 1);
    for text in [
        POLICY.replace(lists, "  touchPolicies:\n"),
        POLICY.replace(lists, "  touchPolicies: ~\n"),
        POLICY.replace("minFirmware: 5.7.0", "minFirmware:"),
        POLICY.replace("maxLifetime: 8h", "maxLifetime:"),
        POLICY.replace("{touchPolicies: [always]}", ""),
        POLICY.replace("groups: [dev, ops]", "groups:"),
        format!("{POLICY}roots:\n"),
    ] {
        assert_ne!(text, POLICY);
        let error = Policy::from_yaml(text.as_bytes(), "the file").unwrap_err();
        assert!(error.to_string().contains("this can't be read"), "{text}\n{error}");
    }
}
