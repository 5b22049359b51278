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

fn policy(text: &str) -> Policy {
    Policy::from_yaml(text.as_bytes(), "the file").unwrap_or_else(|error| panic!("{error}"))
}

/// What a YubiKey says of a key that the policy allows for jane.
fn claims() -> YubiKeyClaims {
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

/// What the policy says of a request, a line each.
fn told(
    user: Option<&str>,
    groups: &[&str],
    seconds: Option<i64>,
    claims: Option<&YubiKeyClaims>,
) -> Vec<String> {
    let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
    let asked = Asked { user, groups: &groups, seconds, claims };
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
            YubiKeyClaims { firmware: older, ..claims() },
            "line 4 (require.minFirmware): the YubiKey's firmware is older: 5.4.3",
        ),
        (
            YubiKeyClaims { pin_policy: PinPolicy::Never, ..claims() },
            "line 5 (require.pinPolicies): the key has PIN never",
        ),
        (
            YubiKeyClaims { pin_policy: PinPolicy::MatchOnce, ..claims() },
            "line 5 (require.pinPolicies): the key has fingerprint or PIN once",
        ),
        (
            YubiKeyClaims { touch_policy: TouchPolicy::Never, ..claims() },
            "line 7 (require.touchPolicies): the key has touch never",
        ),
        (
            YubiKeyClaims { slot: Slot::from_name("9e").unwrap(), ..claims() },
            "line 9 (require.slots): the key has slot 9e",
        ),
    ] {
        assert_eq!(told(Some("jane"), &[], Some(600), Some(&claims)), [expected]);
    }
}

#[test]
fn a_users_own_requirement_is_another_one() {
    let expected = "line 19 (users[2].require.touchPolicies): the key has touch cached";
    assert_eq!(told(Some("ann"), &[], Some(600), Some(&claims())), [expected]);
    let always = YubiKeyClaims { touch_policy: TouchPolicy::Always, ..claims() };
    assert_eq!(told(Some("ann"), &[], Some(600), Some(&always)), [""; 0]);
}

#[test]
fn everything_that_is_not_allowed_is_told() {
    let claims = YubiKeyClaims {
        serial_number: SerialNumber(1),
        pin_policy: PinPolicy::Never,
        touch_policy: TouchPolicy::Never,
        ..claims()
    };
    assert_eq!(told(Some("jane"), &["x"], None, Some(&claims)).len(), 5);
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
            "line 14: unknown field \"grops\"; the known ones are name, serialNumbers, groups, require",
        ),
        (
            replaced("slots: [9a, 82]", "minFirmware: 5.4.0"),
            "line 9: field \"minFirmware\" is there twice",
        ),
        (replaced("  serialNumbers: [15873458]\n", ""), "the field serialNumbers is missing"),
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
        (replaced("8h", "8"), "line 10 (maxLifetime): it is not a duration such as 8h or 90d"),
        (
            replaced("name: joe", "name: jane"),
            "line 15 (users[1].name): user \"jane\" is there twice",
        ),
        (replaced("15873458", "no"), "line 16: this can't be read, or something else belongs here"),
        (
            replaced("[15873458]", "15873458"),
            "line 16: this can't be read, or something else belongs here",
        ),
        (replaced("8h", "<<"), "line 10 (maxLifetime): it is not a duration such as 8h or 90d"),
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
    let asked =
        Asked { user: Some("jane"), groups: &[], seconds: Some(600), claims: Some(&claims) };
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
