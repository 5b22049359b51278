module pkcs11-external-signer/identities

go 1.26.0
