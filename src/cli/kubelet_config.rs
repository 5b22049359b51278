//! `kubelet-config`: what kubelet and systemd have to be told so that kubelet runs this program.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::sealed::ProviderOptions;
use super::session::CommandSession;
use crate::config::Uri;
use crate::error::{Error, PROGRAM};
use crate::printable::{printable, shell_word};

/// Where systemd puts a credential of kubelet's unit.
const PIN_FILE: &str = "/run/credentials/kubelet.service/pkcs11-pin";

const SYSTEMD: &str = "
# /etc/systemd/system/kubelet.service.d/pkcs11-pin.conf
# [Service]
# LoadCredentialEncrypted=pkcs11-pin:/etc/kubernetes/pkcs11-pin.cred
#
# Once, on the node; --with-key=host+tpm2 binds the PIN to this TPM, too:
# systemd-ask-password -n 'PIN:' | systemd-creds encrypt --name=pkcs11-pin - /etc/kubernetes/pkcs11-pin.cred
";

/// Print kubelet's CredentialProviderConfig, systemd's drop-in for the PIN, and what to check
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pkcs11-external-signer kubelet-config --sealed /etc/kubernetes/logins.cms \\
      --match-image registry.example --module /usr/lib/x86_64-linux-gnu/libtpm2_pkcs11.so.1

It writes nothing and touches no token. The file has its name on the node. Without --pin-source the PIN is a credential that systemd decrypts.")]
pub(super) struct KubeletConfigArguments {
    #[command(flatten)]
    provider: ProviderOptions,
    /// A registry that kubelet asks for; may be repeated
    #[arg(long, value_name = "HOST", required = true)]
    match_image: Vec<String>,
}

/// Prints it.
#[cold]
pub(super) fn run(
    arguments: &KubeletConfigArguments,
    session: &mut CommandSession,
) -> Result<(), Error> {
    // It is printed anew, without a PIN that stands in it.
    let selection = arguments.provider.opening.key_options().selection;
    selection.uri.as_deref().map(Uri::parse).transpose()?;
    session.output.print(&text(arguments))
}

fn text(arguments: &KubeletConfigArguments) -> String {
    let ProviderOptions { sealed, opening, pin_source } = &arguments.provider;
    let file = std::path::absolute(sealed).unwrap_or_else(|_| sealed.clone());
    let mut plugin = vec!["kubelet-credential-provider".to_owned()];
    plugin.push(format!("--sealed={}", file.display()));
    plugin.extend(opening.arguments());
    let systemds = format!("file:{PIN_FILE}");
    plugin.push(format!("--pin-source={}", pin_source.as_ref().unwrap_or(&systemds)));
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(PROGRAM));
    let name = program.file_name().map_or_else(|| PROGRAM.into(), |it| it.to_string_lossy());
    let directory = program.parent().unwrap_or_else(|| Path::new("/usr/local/bin"));
    let list = |items: &[String]| -> String {
        items.iter().map(|it| format!("  - {}\n", quoted(it))).collect()
    };
    let mut text = format!(
        "# /etc/kubernetes/credential-provider.yaml\n\
         apiVersion: kubelet.config.k8s.io/v1\n\
         kind: CredentialProviderConfig\n\
         providers:\n\
         - name: {}\n  \
           apiVersion: credentialprovider.kubelet.k8s.io/v1\n  \
           defaultCacheDuration: 10m\n  \
           matchImages:\n{}  \
           args:\n{}\n\
         # kubelet's options\n\
         # --image-credential-provider-config=/etc/kubernetes/credential-provider.yaml\n\
         # --image-credential-provider-bin-dir={}\n",
        quoted(&name),
        list(&arguments.match_image),
        list(&plugin),
        printable(&directory.to_string_lossy()),
    );
    if pin_source.is_none() {
        text.push_str(SYSTEMD);
    }
    let options = opening.arguments();
    let options: Vec<_> = options.iter().map(|it| shell_word(it).into_owned()).collect();
    let _ = writeln!(
        text,
        "\n# To check, on the node:\n# {} check --sealed {} {} --image REGISTRY/IMAGE",
        PROGRAM,
        shell_word(&sealed.display().to_string()),
        options.join(" "),
    );
    text
}

/// A YAML scalar, in JSON's way.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
