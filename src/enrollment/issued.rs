//! Whether an issued certificate is the one that was asked for.

use crypto::certificate::{Certificate, ValidityState, issuer_among, minute, rfc_3339};
use messages::error::{Error, Exit};
use messages::printable::quoted;

/// Checks that a certificate can be used; `now` is in seconds since 1970. The user and the groups, in any order, are
/// only compared if some are expected.
pub fn check_issued(
    certificate: &Certificate,
    user: Option<&str>,
    groups: Option<&[String]>,
    now: i64,
) -> Result<(), Error> {
    let refused = |reason: &str| of_no_use(certificate, reason);
    if certificate.is_ca {
        return Err(refused("it is the certificate of a CA"));
    }
    let Some(issued) = certificate.user.as_deref() else {
        return Err(refused("it names no user (CN)"));
    };
    if let Some(expected) = user.filter(|expected| *expected != issued) {
        return Err(for_another(&format!("user {issued:?}"), &format!("{expected:?}")));
    }
    if let Some(expected) = groups
        && sorted(expected) != sorted(&certificate.groups)
    {
        return Err(for_another(&in_groups(&certificate.groups), &in_groups(expected)));
    }
    if !certificate.is_for_clients {
        let reason = "its extended key usage does not allow TLS clients (clientAuth)";
        return Err(refused(reason));
    }
    if let Some(objection) = certificate.objections.first() {
        return Err(refused(objection));
    }
    if certificate.validity.at(now) == ValidityState::NotYetValid {
        return Err(not_yet_valid(certificate, now));
    }
    match certificate.validity.concern(now) {
        Some(reason) => Err(refused(&reason)),
        None => Ok(()),
    }
}

/// The error for a certificate that servers would not take, for this reason.
fn of_no_use(certificate: &Certificate, reason: &str) -> Error {
    let subject = &certificate.subject;
    let text = format!("the certificate of {subject} is of no use here: {reason}");
    Error::new(Exit::Object, text).help(
        "have the CA issue one from the request: valid now, with extended key usage clientAuth, the user as common \
         name, and a signature with SHA-256 or better",
    )
}

/// The error for a certificate that begins after `now`, in seconds since 1970.
fn not_yet_valid(certificate: &Certificate, now: i64) -> Error {
    let begin = rfc_3339(certificate.validity.not_before);
    let here = rfc_3339(now);
    let text = format!(
        "the certificate of {} is valid from {begin} on, and here it is {here}",
        certificate.subject
    );
    Error::new(Exit::Object, text).help(
        "run the same command again when it is valid; if this machine's clock is behind, set it",
    )
}

/// What a person should know of a certificate that was to be valid for so many seconds from now on.
pub fn remark(certificate: &Certificate, requested: u64, now: i64) -> Option<String> {
    let than = if outlasts(certificate, requested, now) {
        "longer"
    } else if time_left(certificate, now) < requested.saturating_sub(MARGIN) {
        "shorter"
    } else {
        return None;
    };
    let end = minute(certificate.validity.not_after);
    Some(format!("it is valid for a {than} time than was asked for: it expires {end}"))
}

/// Whether a certificate that was to be valid for so many seconds from now on is valid for much longer.
pub fn outlasts(certificate: &Certificate, requested: u64, now: i64) -> bool {
    time_left(certificate, now) > requested.saturating_add(MARGIN)
}

/// How long the certificate is still valid, in seconds.
fn time_left(certificate: &Certificate, now: i64) -> u64 {
    u64::try_from(certificate.validity.not_after.saturating_sub(now)).unwrap_or_default()
}

/// The error for a certificate that is for somebody else than was asked for.
pub fn for_another(issued: &str, expected: &str) -> Error {
    Error::new(Exit::Object, format!("the certificate is for {issued}, not for {expected}")).help(
        "have the CA issue one for the right name and groups, or give those of the certificate with --user and --group",
    )
}

/// The certificates among `others` (DER) that lead from the certificate towards its root. The root itself is left out,
/// since servers have it.
pub fn intermediates(certificate: &Certificate, others: &[Vec<u8>]) -> Vec<Certificate> {
    let mut chain: Vec<Certificate> = Vec::new();
    while let Some(der) = issuer_among(others, chain.last().unwrap_or(certificate).der())
        // Certificates may name each other as their issuers.
        && chain.iter().all(|known| known.der() != der)
        && let Ok(issuer) = Certificate::from_der(der, "the CA's certificate")
    {
        chain.push(issuer);
    }
    chain
}

/// How much longer than asked for a certificate may be valid, in seconds: the time that may pass between the request
/// and its answer.
const MARGIN: u64 = 600;

fn sorted(groups: &[String]) -> Vec<&str> {
    let mut groups: Vec<_> = groups.iter().map(String::as_str).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// The groups in a sentence, as in `groups "dev", "ops"`.
pub fn in_groups(groups: &[String]) -> String {
    match groups {
        [] => "no groups".to_owned(),
        [only] => format!("group {only:?}"),
        several => format!("groups {}", quoted(several)),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
        KeyPair, date_time_ymd,
    };

    use super::*;

    /// 1 June 2030.
    const NOW: i64 = 1_906_502_400;

    /// A certificate for jane in group dev until 2031, but for this.
    fn issued(change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(2031, 1, 1);
        change(&mut params);
        let pair = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&pair).unwrap();
        Certificate::from_der(certificate.der(), "it").unwrap()
    }

    fn check(certificate: &Certificate, user: &str, groups: &[&str]) -> Result<(), Error> {
        let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
        check_issued(certificate, Some(user), Some(&groups), NOW)
    }

    #[test]
    fn the_certificate_that_was_asked_for_is_taken() {
        let usage = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        };
        for certificate in [issued(|_| {}), issued(usage)] {
            check(&certificate, "jane", &["dev"]).unwrap();
            assert_eq!(remark(&certificate, 214 * 24 * 3600, NOW), None);
        }
        check_issued(&issued(|_| {}), None, None, NOW).unwrap();
    }

    #[test]
    fn intermediates_lead_from_the_certificate_to_below_the_root() {
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            (params, KeyPair::generate().unwrap())
        };
        let [root, upper, lower, other] = ["root", "upper", "lower", "other"].map(authority);
        let signed = |(params, key): &(CertificateParams, KeyPair),
                      by: &(CertificateParams, KeyPair)| {
            let issuer = Issuer::from_params(&by.0, &by.1);
            params.signed_by(key, &issuer).unwrap().der().to_vec()
        };
        let leaf = signed(&authority("jane"), &lower);
        let leaf = Certificate::from_der(&leaf, "it").unwrap();
        let self_signed = signed(&root, &root);
        let others = [
            self_signed,
            signed(&upper, &root),
            b"junk".to_vec(),
            signed(&other, &root),
            signed(&lower, &upper),
        ];
        let subjects = |others: &[Vec<u8>]| -> Vec<String> {
            let chain = intermediates(&leaf, others).into_iter();
            chain.map(|authority| authority.subject).collect()
        };
        assert_eq!(subjects(&others), ["CN=lower", "CN=upper"]);
        assert_eq!(subjects(&others[..4]), [""; 0]);
        // Two that name each other.
        let circle = [signed(&upper, &lower), signed(&lower, &upper)];
        assert_eq!(subjects(&circle), ["CN=lower", "CN=upper"]);
    }

    #[test]
    fn one_for_somebody_else_is_refused() {
        for (user, groups) in [("joe", &["dev"][..]), ("jane", &[]), ("jane", &["dev", "ops"])] {
            let error = check(&issued(|_| {}), user, groups).unwrap_err();
            assert!(error.to_string().starts_with("the certificate is for "), "{error}");
        }
    }

    #[test]
    fn one_that_no_server_would_accept_is_refused() {
        let server = issued(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        let expired = issued(|params| params.not_after = date_time_ymd(2030, 5, 1));
        let authority = issued(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        let unnamed = issued(|params| {
            params.distinguished_name.remove(DnType::CommonName);
        });
        for (certificate, reason) in [
            (server, "clientAuth"),
            (expired, "it expired"),
            (authority, "of a CA"),
            (unnamed, "no user"),
        ] {
            let error = check(&certificate, "jane", &["dev"]).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn another_time_than_was_asked_for_is_told_and_a_later_beginning_refused() {
        let short = issued(|params| params.not_after = date_time_ymd(2030, 6, 2));
        for (requested, told) in [(3600, "longer time"), (365 * 24 * 3600, "shorter time")] {
            let remark = remark(&short, requested, NOW).unwrap();
            assert!(remark.contains(told), "{remark}");
        }
        let later = issued(|params| params.not_before = date_time_ymd(2030, 7, 1));
        let error = check(&later, "jane", &["dev"]).unwrap_err();
        let expected = "is valid from 2030-07-01T00:00:00Z on, and here it is 2030-06-01T00:00:00Z";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
}
