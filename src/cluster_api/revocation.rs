//! The ValidatingAdmissionPolicy by which a cluster lets the bearer of one certificate change nothing.

use crate::Kubectl;
use crate::signing_request::CREDENTIAL_ID;
use messages::error::Error;

/// A certificate whose bearer is to change nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RevokedCertificate {
    /// The SHA-256 of the certificate's DER, as 64 lower-case hexadecimal digits.
    sha256: String,
}

impl RevokedCertificate {
    /// The certificate with this SHA-256; `None` unless the text has 64 hexadecimal digits.
    pub fn new(sha256: &str) -> Option<Self> {
        let is_sha256 = sha256.len() == 64 && sha256.bytes().all(|it| it.is_ascii_hexdigit());
        is_sha256.then(|| Self { sha256: sha256.to_ascii_lowercase() })
    }

    /// The id by which the API server knows the certificate: `X509SHA256=` and the digits.
    pub fn credential_id(&self) -> String {
        format!("X509SHA256={}", self.sha256)
    }

    /// The name of the policy and of its binding.
    pub fn policy_name(&self) -> String {
        format!("revoked-{}", self.sha256)
    }

    /// The policy and its binding, in YAML. Nothing in it needs quotes, since only hexadecimal digits differ from one
    /// to the next.
    pub fn manifest(&self) -> String {
        let [name, id] = [self.policy_name(), self.credential_id()];
        format!(
            "\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {name}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: ['*']
      apiVersions: ['*']
      operations: [CREATE, UPDATE, DELETE, CONNECT]
      resources: ['*/*']  # pods/exec and all other subresources, too
  validations:
  - expression: >-
      !('{id}' in
      request.userInfo.?extra['{CREDENTIAL_ID}'].orValue([]))
    message: the certificate {id} is revoked
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {name}
spec:
  policyName: {name}
  validationActions: [Deny]
"
        )
    }

    /// Applies the manifest, and returns what kubectl says of each object, in a line each.
    pub fn apply(&self, kubectl: &Kubectl) -> Result<String, Error> {
        let printed = kubectl.run(&["apply"], Some(&self.manifest()), "apply the policy")?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }
}
