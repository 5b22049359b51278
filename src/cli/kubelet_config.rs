//! `kubelet-config`: what kubelet and systemd have to be told so that kubelet runs this program.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::output::CommandOutput;
use super::sealed::{self, ProviderOptions};
use crate::credential_provider::ProviderVersion;
use crate::error::{Error, PROGRAM};
use crate::printable::{printable, shell_word};
use crate::report;

/// Where systemd puts a credential of kubelet's unit.
const PIN_FILE: &str = "/run/credentials/kubelet.service/pkcs11-pin";

/// Print kubelet's CredentialProviderConfig, systemd's drop-in for the PIN, and what to check
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubelet-config --sealed /etc/kubernetes/logins.cms \\
      --module /usr/lib/x86_64-linux-gnu/libtpm2_pkcs11.so.1

It writes nothing and touches no token. A file has its name on the node. Without --pin-source the PIN is a credential that systemd decrypts.")]
pub(super) struct KubeletConfigArguments {
    #[command(flatten)]
    provider: ProviderOptions,
    /// The registries that kubelet asks for; without it, those that the files name
    #[arg(long, value_name = "HOST")]
    match_image: Vec<String>,
}

/// Prints it; the exit code.
#[cold]
pub(super) fn run(arguments: &KubeletConfigArguments) -> u8 {
    match show(arguments) {
        Ok(()) => 0,
        Err(error) => report::error(&error),
    }
}

fn show(arguments: &KubeletConfigArguments) -> Result<(), Error> {
    let mut output = CommandOutput::open()?;
    let mut images: BTreeSet<String> = arguments.match_image.iter().cloned().collect();
    if images.is_empty() {
        for path in &arguments.provider.sealed {
            let file = sealed::read(path)?;
            images.extend(file.registries.iter().flatten().map(ToString::to_string));
        }
    }
    Ok(output.print(&text(arguments, &images))?)
}

fn text(arguments: &KubeletConfigArguments, images: &BTreeSet<String>) -> String {
    let mut words = vec!["kubelet-credential-provider".to_owned()];
    for path in &arguments.provider.sealed {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        words.push(format!("--sealed={}", path.display()));
    }
    words.extend(arguments.provider.opening.arguments());
    let is_systemds = arguments.provider.pin_source.is_none();
    let source = arguments.provider.pin_source.clone();
    words.push(format!("--pin-source={}", source.unwrap_or_else(|| format!("file:{PIN_FILE}"))));
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(PROGRAM));
    let name = program.file_name().map_or_else(|| PROGRAM.into(), |it| it.to_string_lossy());
    let mut text = String::new();
    let _ = write!(
        text,
        "# /etc/kubernetes/credential-provider.yaml\n\
         apiVersion: kubelet.config.k8s.io/v1\n\
         kind: CredentialProviderConfig\n\
         providers:\n\
         - name: {}\n  \
           apiVersion: {}\n  \
           defaultCacheDuration: 10m\n  \
           matchImages:\n",
        quoted(&name),
        ProviderVersion::V1.name(),
    );
    if images.is_empty() {
        text.push_str("  - \"REGISTRY\"   # the files don't name it; HOST or HOST:PORT\n");
    }
    for image in images {
        let _ = writeln!(text, "  - {}", quoted(image));
    }
    text.push_str("  args:\n");
    for word in &words {
        let _ = writeln!(text, "  - {}", quoted(word));
    }
    let directory = program.parent().unwrap_or_else(|| Path::new("/usr/local/bin"));
    let _ = write!(
        text,
        "\n# kubelet's options\n\
         # --image-credential-provider-config=/etc/kubernetes/credential-provider.yaml\n\
         # --image-credential-provider-bin-dir={}\n",
        printable(&directory.to_string_lossy()),
    );
    if is_systemds {
        text.push_str(
            "\n# /etc/systemd/system/kubelet.service.d/pkcs11-pin.conf\n\
             # [Service]\n\
             # LoadCredentialEncrypted=pkcs11-pin:/etc/kubernetes/pkcs11-pin.cred\n\
             #\n\
             # Once, on the node; --with-key=host+tpm2 binds the PIN to this TPM, too:\n\
             # systemd-ask-password -n 'PIN:' | systemd-creds encrypt --name=pkcs11-pin - /etc/kubernetes/pkcs11-pin.cred\n",
        );
    }
    text.push_str("\n# To check, on the node:\n");
    for path in &arguments.provider.sealed {
        let options = arguments.provider.opening.arguments();
        let options: Vec<_> = options.iter().map(|it| shell_word(it).into_owned()).collect();
        let _ = writeln!(
            text,
            "# {} check --sealed {} {} --image REGISTRY/IMAGE",
            PROGRAM,
            shell_word(&path.display().to_string()),
            options.join(" "),
        );
    }
    text
}

/// A YAML scalar, in JSON's way.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
