//! Files that `seal` and openssl have sealed to a token's key, opened by it for kubelet.

use super::environment::Token;
use crate::fixture::*;
use crate::kubelet::keys::issued;
use crate::kubelet::{IMAGE, asked, assert_answers};
use crate::seal::{CONFIG, sealed_by_openssl};

/// Who takes OAEP off.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unpadding {
    Tokens,
    Ours,
}

impl Token<'_> {
    /// What kubelet runs for this file.
    pub(crate) fn provider(&self, file: &Path) -> Invocation {
        let options = self.configuration.options();
        self.command(&["kubelet-credential-provider"])
            .arguments(&["--sealed", text(file), "--pin-source=env:TOKEN_PIN"])
            .arguments(&options.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Demands that each file for this certificate is opened.
    #[track_caller]
    pub(crate) fn assert_opens(&self, certificate: &Path, kind: Kind, unpadding: Unpadding) {
        for file in self.sealed(certificate, kind) {
            let provider = self.provider(&file);
            let outcome = asked(provider.variable("PKCS11_EXTERNAL_SIGNER_LOG", "debug"), IMAGE);
            assert_answers(&outcome, "registry.example:5000", "Registry");
            let is_ours = outcome.stderr.contains("OAEP is taken off here");
            assert_eq!(is_ours, unpadding == Unpadding::Ours, "{file:?}");
        }
    }

    /// Demands that `enroll` makes keys of these kinds that open.
    #[track_caller]
    pub(crate) fn assert_enrolls_for_unsealing(&self, kinds: &[(&str, Kind)]) {
        let options = self.configuration.options();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let enroll = |more: &[&str]| {
            let command = self.command(&["enroll", "--pin-source=env:TOKEN_PIN"]);
            command.arguments(&options).arguments(more).run().printed()
        };
        for (name, kind) in kinds {
            let csr = self.environment.store.path(format!("{name}.csr"));
            let user = format!("--user={name}");
            enroll(&["--for=unsealing", &user, "--key", name, "--csr", text(&csr)]);
            let certificate = issued(text(&csr));
            enroll(&["--certificate", &certificate]);
            self.assert_opens(Path::new(&certificate), *kind, Unpadding::Tokens);
        }
    }

    /// A file of `seal`, and one of openssl.
    pub(crate) fn sealed(&self, certificate: &Path, kind: Kind) -> Vec<PathBuf> {
        let directory = self.environment.store.directory.path();
        let at = |name: &str| directory.join(name);
        let (config, own) = (at("config.json"), at("registry.cms"));
        fs::write(&config, CONFIG).unwrap();
        Invocation::new(directory)
            .arguments(&["seal", "--recipient", text(certificate)])
            .arguments(&["--out", text(&own), text(&config)])
            .run()
            .printed();
        let file = at("openssl.cms");
        let mut options = vec!["-aes-256-gcm", "-recip", text(certificate), "-keyopt"];
        match kind {
            Kind::Rsa(_) => {
                options.extend(["rsa_padding_mode:oaep", "-keyopt", "rsa_oaep_md:sha256"]);
            }
            _ => options.push("ecdh_kdf_md:sha256"),
        }
        sealed_by_openssl(&file, text(&config), &options);
        vec![own, file]
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
