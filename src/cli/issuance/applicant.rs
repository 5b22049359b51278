//! Who asks for a certificate: the name of the request, and the right to make one.

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::enrollment::{Applicant, RESERVED, fingerprint, for_any_key};
use cluster_api::ClusterUser;
use crypto::certificate::{Certificate, PublicKey};
use messages::error::{Error, Exit};
use messages::printable::hex;

/// The longest part of a request's name that comes from the user's name, in characters.
const LONGEST_USER: usize = 40;
/// How many hexadecimal digits of the key's hash a request's name has.
const DIGITS: usize = 10;

/// What a person is to do with the [right](right_to_request).
pub(in crate::cli) const APPLY: &str =
    "have an administrator of the cluster apply this (`kubectl apply -f -`)";

/// The right of this user to ask for certificates, in YAML.
pub(in crate::cli) fn right_to_request(user: &str) -> [String; 12] {
    let name = json!(format!("certificate-requesters:{user}"));
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
    [
        "apiVersion: v1",
        "kind: List",
        "items:",
        "- apiVersion: rbac.authorization.k8s.io/v1",
        "  kind: ClusterRole",
        "  metadata: {name: certificate-requesters}",
        "  rules: [{apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create, get, delete]}]",
        "- apiVersion: rbac.authorization.k8s.io/v1",
        "  kind: ClusterRoleBinding",
        &format!("  metadata: {{name: {name}}}"),
        "  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: certificate-requesters}",
        &format!("  subjects: [{subject}]"),
    ]
    .map(str::to_owned)
}

/// The applicant for a certificate of this user of the cluster. An error for users and groups for which none is
/// requested.
pub(in crate::cli) fn applicant(user: &ClusterUser) -> Result<Applicant, Error> {
    let (name, groups) = (&user.name, for_any_key(user.assigned_groups()));
    if let Some(group) = groups.iter().find(|group| group.starts_with(RESERVED)) {
        let text =
            format!("user \"{name}\" is in group {group}, for which no certificate is requested");
        return Err(Error::new(Exit::Cluster, text).help(
            "use --as token for a service account with these rights, or the tunnel (`run`, `credential`)",
        ));
    }
    Applicant::new(name.clone(), groups).map_err(|error| {
        error.help("use the tunnel (`run`, `credential`), or --as token for a service account")
    })
}

/// The first name of a request: `jane-0a1b2c3d4e`, made of the user and the key, or `jane-0a1b2c3d4e-5f60718293` for
/// the renewal of a certificate.
pub(super) fn request_name(
    user: &str,
    key: &PublicKey,
    renewed: Option<&Certificate>,
) -> Result<String, Error> {
    let letters: String = user
        .chars()
        .map(
            |letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' },
        )
        .take(LONGEST_USER)
        .collect();
    let user = match letters.trim_matches('-') {
        "" => "user",
        letters => letters,
    };
    let short = |digits: &str| digits.chars().take(DIGITS).collect::<String>();
    let mut name = format!("{user}-{}", short(&fingerprint(key)?));
    if let Some(renewed) = renewed {
        name += "-";
        name += &short(&hex(&Sha256::digest(renewed.der())));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::certificate::Curve;

    #[test]
    fn a_requests_name_follows_from_user_and_key_and_is_fit_for_a_url() {
        let key = PublicKey::Ecdsa { curve: Curve::P256, point: [vec![4], vec![7; 64]].concat() };
        let print = fingerprint(&key).unwrap();
        let named = |user: &str| request_name(user, &key, None).unwrap();
        assert_eq!(named("jane"), format!("jane-{}", &print[..10]));
        for (user, begin) in [
            ("Jane.Doe@example.com", "jane-doe-example-com-"),
            ("oidc:jäne", "oidc-j-ne-"),
            ("--", "user-"),
            ("", "user-"),
        ] {
            assert!(named(user).starts_with(begin), "{}", named(user));
        }
        assert!(named(&"x".repeat(300)).len() < 63);
    }
}
