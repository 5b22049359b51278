# Builds from the sources in which it lies:
#
#   nix-build --expr 'with import <nixpkgs> { }; callPackage ./scripts/package.nix { }'
{ lib, rustPlatform, installShellFiles }:

let
  manifest = lib.importTOML ../Cargo.toml;
  name = manifest.package.name;
in
rustPlatform.buildRustPackage {
  pname = name;
  version = manifest.workspace.package.version;

  src = lib.cleanSourceWith {
    src = lib.cleanSource ../.;
    filter = path: _: baseNameOf path != "target";
  };
  cargoLock.lockFile = ../Cargo.lock;

  # As in .cargo/config.toml.
  env.AWS_LC_SYS_NO_JITTER_ENTROPY = "1";

  # They want tokens, a cluster and namespaces of their own.
  doCheck = false;

  nativeBuildInputs = [ installShellFiles ];
  postInstall = ''
    ln -s ${name} $out/bin/kubectl-pkcs11
    cargo run --offline --locked --example man-pages man
    installManPage man/*.1
    for shell in bash zsh fish; do
      installShellCompletion --cmd ${name} --$shell <($out/bin/${name} completions $shell)
    done
  '';

  meta = {
    inherit (manifest.package) description;
    license = lib.licenses.asl20;
    mainProgram = name;
    platforms = lib.platforms.linux ++ lib.platforms.darwin;
  };
}
