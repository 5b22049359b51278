//! What is demanded of every module, whatever its token is.

use super::environment::{Offer, Pair, Token};
use crate::fixture::*;

/// A key of an administrator, as the token has it.
pub(crate) struct Held {
    /// objectId
    pub(crate) id: String,
    kind: Kind,
    certificate: Vec<u8>,
}

impl Held {
    pub(crate) fn new(id: &str, kind: Kind) -> Self {
        // NSS has one name for all certificates of a subject.
        let subject = format!("/O=system:masters/CN=jane-{id}").leak();
        let certificate = cluster().issue(kind, Claims { subject, ..ADMINISTRATOR });
        Self { id: id.to_owned(), kind, certificate }
    }

    /// For a script, which names it so.
    pub(crate) fn pair(&self, name: &'static str) -> Pair {
        Pair::certified(name, self.kind, self.certificate.clone())
    }

    /// For SoftHSM.
    pub(crate) fn objects(&self) -> [Object; 2] {
        let id = [self.id.parse().unwrap()];
        [Object::key(key(self.kind), &id), Object::issued(self.certificate.clone(), &id)]
    }
}

impl Token<'_> {
    /// Demands the certificate of each of these keys and every scheme; for RSA and P-256 that they are listed
    /// with what identifies the token, checked, and let kubectl in; and of the first one twenty answers at once.
    #[track_caller]
    pub(crate) fn assert_conforms(
        &self,
        keys: &[Held],
        listed: &str,
        offers: impl Fn(Kind, Scheme) -> Offer,
    ) {
        let options = self.configuration.options();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let list = self.command(&["list"]).arguments(&options).run().printed();
        assert!(list.contains(listed), "no {listed} in\n{list}");
        for Held { id, kind, certificate } in keys {
            let answer = self.certificate(id).run();
            assert_eq!(answer.silently().certificate(), *certificate, "{kind:?}");
            self.assert_signs(id, *kind, |scheme| offers(*kind, scheme));
            let (name, scheme) = match kind {
                Kind::Rsa(2048) => ("RSA-2048", "RSA-PSS with SHA-256, salt 32"),
                Kind::P256 => ("ECDSA P-256", "ECDSA P-256"),
                _ => continue,
            };
            assert!(list.contains(name), "no {name} in\n{list}");
            let check = ["check", "--object-id", id, "--pin-source=env:TOKEN_PIN"];
            let checked = self.command(&check).arguments(&options).run().told(0);
            let signed = format!("✔ signature      {scheme}: signed and verified\n");
            assert!(checked.contains(&signed), "{checked}");
            let end = "✔ TLS            this key can serve TLS 1.3 and TLS 1.2\n";
            assert!(checked.ends_with(end), "{checked}");
            self.assert_kubectl_gets(id);
        }
        self.assert_all_answer(&keys[0].id, keys[0].kind, 20);
    }
}
