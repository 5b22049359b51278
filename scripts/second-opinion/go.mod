module pkcs11-external-signer/second-opinion

go 1.25.0

require github.com/go-piv/piv-go/v2 v2.6.0

require golang.org/x/crypto v0.50.0 // indirect
