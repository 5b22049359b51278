//! Whom the API server shall take a key's holder for.

use std::collections::HashSet;

use super::error::EnrollmentError;
use crate::printable::is_harmful;

/// Groups with this prefix are the cluster's own. The signer refuses `system:masters`, and the API server
/// adds others itself.
const RESERVED: &str = "system:";

/// Who the API server is to take the bearer for: common name and organizations of a certificate's subject, or the
/// constants of an issuer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Applicant {
    user: String,
    groups: Vec<String>,
}

impl Applicant {
    /// # Errors
    /// A name that is empty or has control characters, and a group that is the cluster's own.
    pub fn new(user: String, groups: Vec<String>) -> Result<Self, EnrollmentError> {
        for (what, name) in
            [("user", &user)].into_iter().chain(groups.iter().map(|group| ("group", group)))
        {
            let reason = if name.trim().is_empty() {
                "it is empty"
            } else if name.chars().any(is_harmful) {
                "it has control characters"
            } else {
                continue;
            };
            return Err(EnrollmentError::BadName { what, reason });
        }
        if let Some(group) = groups.iter().find(|group| group.starts_with(RESERVED)) {
            let group = group.clone();
            return Err(EnrollmentError::ReservedGroup { group });
        }
        let mut seen = HashSet::new();
        let mut groups = groups;
        groups.retain(|group| seen.insert(group.clone()));
        Ok(Self { user, groups })
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn groups(&self) -> &[String] {
        &self.groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applicant(user: &str, groups: &[&str]) -> Result<Applicant, EnrollmentError> {
        let groups = groups.iter().map(ToString::to_string).collect();
        Applicant::new(user.to_owned(), groups)
    }

    #[test]
    fn a_name_is_neither_empty_nor_hidden_in_control_characters() {
        for (user, groups) in [
            ("", &[][..]),
            (" ", &[]),
            ("ja\nne", &[]),
            ("jane\u{202e}", &[]),
            ("jane", &[""]),
            ("jane", &["dev\u{7}"]),
        ] {
            let error = applicant(user, groups).unwrap_err();
            assert!(matches!(error, EnrollmentError::BadName { .. }), "{error}");
        }
    }

    #[test]
    fn the_clusters_own_groups_are_refused_and_a_group_is_asked_for_once() {
        let error = applicant("jane", &["dev", "system:masters"]).unwrap_err();
        assert!(error.to_string().contains("system:masters"), "{error}");
        let jane = applicant("jane", &["dev", "ops", "dev"]).unwrap();
        assert_eq!(jane.groups(), ["dev", "ops"]);
    }
}
