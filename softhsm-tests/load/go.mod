module pkcs11-external-signer/load

go 1.26.0
