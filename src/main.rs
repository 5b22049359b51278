//! Starts the program and ends with its exit code.

fn main() {
    pkcs11_external_signer::process::leave(pkcs11_external_signer::cli::main())
}
