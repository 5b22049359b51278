//! The entry of an issuer in kube-apiserver's AuthenticationConfiguration (its `--authentication-config`).

use std::fmt::Write as _;

use serde_json::json;

use super::Issuer;

/// What Go's JSON takes for `exp` and `nbf`.
const OTHER_CASES: &str = "'EXP', 'EXp', 'ExP', 'Exp', 'eXP', 'eXp', 'exP', \
                           'NBF', 'NBf', 'NbF', 'Nbf', 'nBF', 'nBf', 'nbF'";

/// An issuer whose tokens are one person's: the user and the groups are constants, whatever a token claims,
/// since who has the key can sign any claims.
pub struct TrustedIssuer<'a> {
    pub issuer: &'a Issuer,
    /// Where the API server finds the issuer's documents.
    pub served_at: &'a Issuer,
    /// The CA of the server there, in PEM; without it one of those that the API server's machine trusts.
    pub authority: Option<&'a str>,
    pub audiences: &'a [String],
    pub user: &'a str,
    pub groups: &'a [String],
    /// The longest life of a token that is taken, in seconds.
    pub longest_life: u64,
}

impl TrustedIssuer<'_> {
    /// A whole configuration in YAML, with this issuer alone.
    pub fn configuration(&self) -> String {
        // A JSON text is a YAML scalar in double quotes.
        let text = |text: &str| json!(text).to_string();
        let constant = |value: &str| text(&literal(value));
        let mut yaml = format!(
            "apiVersion: apiserver.config.k8s.io/v1 # v1beta1 before Kubernetes 1.34\n\
             kind: AuthenticationConfiguration\n\
             jwt:\n\
             - issuer:\n\
             \x20   url: {}\n",
            text(self.issuer.as_str())
        );
        let discovery_url = self.served_at.discovery_url();
        if discovery_url != self.issuer.discovery_url() {
            let _ = writeln!(yaml, "    discoveryURL: {}", text(&discovery_url));
        }
        if let Some(authority) = self.authority {
            yaml.push_str("    certificateAuthority: |\n");
            for line in authority.lines() {
                let _ = writeln!(yaml, "      {}", line.trim());
            }
        }
        let audiences: Vec<_> = self.audiences.iter().map(|it| text(it)).collect();
        let _ = writeln!(yaml, "    audiences: [{}]", audiences.join(", "));
        if self.audiences.len() > 1 {
            yaml.push_str("    audienceMatchPolicy: MatchAny\n");
        }
        let _ = write!(
            yaml,
            "  claimMappings:\n\
             \x20   # A constant: who has the key can sign any claims.\n\
             \x20   username: {{expression: {}}}\n",
            constant(self.user)
        );
        if !self.groups.is_empty() {
            let groups: Vec<_> = self.groups.iter().map(|it| literal(it)).collect();
            let groups = text(&format!("[{}]", groups.join(", ")));
            let _ = writeln!(yaml, "    groups: {{expression: {groups}}}");
        }
        // The API server looks at nbf and never at iat. It takes `EXP` for `exp`, and rules don't.
        let life = self.longest_life;
        let _ = write!(
            yaml,
            "  claimValidationRules:\n\
             \x20 - expression: \"claims.exp - claims.nbf <= {life}\"\n\
             \x20   message: \"the token must live {life} seconds at most\"\n\
             \x20 - expression: \"[{OTHER_CASES}].all(name, !claims[?name].hasValue())\"\n\
             \x20   message: \"exp and nbf must be in lower case\"\n"
        );
        yaml
    }
}

/// A text in CEL, the expressions' language.
fn literal(text: &str) -> String {
    let mut literal = "'".to_owned();
    for character in text.chars() {
        match character {
            '\'' | '\\' => literal.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(literal, "\\u{:04x}", u32::from(control));
            }
            other => literal.push(other),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Demands this entry, in a configuration that has nothing else.
    #[track_caller]
    fn assert_entry(trusted: &TrustedIssuer<'_>, entry: &str) {
        let head = "apiVersion: apiserver.config.k8s.io/v1 # v1beta1 before Kubernetes 1.34\n\
                    kind: AuthenticationConfiguration\n\
                    jwt:\n\
                    - issuer:\n\
                    \x20   url: \"https://keys.example/jane\"\n";
        assert_eq!(trusted.configuration(), format!("{head}{entry}"));
    }

    fn issuer() -> Issuer {
        "https://keys.example/jane".parse().unwrap()
    }

    #[test]
    fn the_issuer_is_one_person() {
        let trusted = TrustedIssuer {
            issuer: &issuer(),
            served_at: &issuer(),
            authority: None,
            audiences: &["prod".to_owned()],
            user: "jane",
            groups: &[],
            longest_life: 600,
        };
        assert_entry(
            &trusted,
            r#"    audiences: ["prod"]
  claimMappings:
    # A constant: who has the key can sign any claims.
    username: {expression: "'jane'"}
  claimValidationRules:
  - expression: "claims.exp - claims.nbf <= 600"
    message: "the token must live 600 seconds at most"
  - expression: "['EXP', 'EXp', 'ExP', 'Exp', 'eXP', 'eXp', 'exP', 'NBF', 'NBf', 'NbF', 'Nbf', 'nBF', 'nBf', 'nbF'].all(name, !claims[?name].hasValue())"
    message: "exp and nbf must be in lower case"
"#,
        );
    }

    #[test]
    fn everything_that_can_be_said_is_in_its_place() {
        let trusted = TrustedIssuer {
            issuer: &issuer(),
            served_at: &"https://127.0.0.1:9443/jane".parse().unwrap(),
            authority: Some("-----BEGIN CERTIFICATE-----\r\nMAA=\r\n-----END CERTIFICATE-----\r\n"),
            audiences: &["prod".to_owned(), "test".to_owned()],
            user: r#"o'hara\"#,
            groups: &["dev".to_owned(), "a\"b".to_owned()],
            longest_life: 60,
        };
        assert_entry(
            &trusted,
            r#"    discoveryURL: "https://127.0.0.1:9443/jane/.well-known/openid-configuration"
    certificateAuthority: |
      -----BEGIN CERTIFICATE-----
      MAA=
      -----END CERTIFICATE-----
    audiences: ["prod", "test"]
    audienceMatchPolicy: MatchAny
  claimMappings:
    # A constant: who has the key can sign any claims.
    username: {expression: "'o\\'hara\\\\'"}
    groups: {expression: "['dev', 'a\"b']"}
  claimValidationRules:
  - expression: "claims.exp - claims.nbf <= 60"
    message: "the token must live 60 seconds at most"
  - expression: "['EXP', 'EXp', 'ExP', 'Exp', 'eXP', 'eXp', 'exP', 'NBF', 'NBf', 'NbF', 'Nbf', 'nBF', 'nBf', 'nbF'].all(name, !claims[?name].hasValue())"
    message: "exp and nbf must be in lower case"
"#,
        );
    }
}
