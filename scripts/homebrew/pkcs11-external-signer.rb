# Builds from the sources of a release; scripts/package fills in what stands between @ signs.
class Pkcs11ExternalSigner < Formula
  desc "Keep Kubernetes client keys in a YubiKey, smart card, TPM or HSM"
  homepage "@REPOSITORY@"
  url "@URL@"
  version "@VERSION@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args
    system "cargo", "run", "--locked", "--example", "man-pages", "man"
    man1.install Dir["man/*.1"]
    bin.install_symlink "pkcs11-external-signer" => "kubectl-pkcs11"
    generate_completions_from_executable(bin/"pkcs11-external-signer", "completions")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/pkcs11-external-signer --version")
    assert_match "kubectl pkcs11", shell_output("#{bin}/kubectl-pkcs11 --help")
  end
end
