module pkcs11-external-signer/load

go 1.27.0

toolchain go1.27.3
