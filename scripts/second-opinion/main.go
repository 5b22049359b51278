// What piv-go says of YubiKeys' attestations, each a PEM file with the key's certificate and the device's.
package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/go-piv/piv-go/v2/piv"
)

func main() {
	for _, path := range os.Args[1:] {
		attestation, err := verify(path)
		if err != nil {
			fmt.Println("no:", err)
			continue
		}
		version := attestation.Version
		fmt.Printf("yes: YubiKey %d, firmware %d.%d.%d, slot %s\n",
			attestation.Serial, version.Major, version.Minor, version.Patch, attestation.Slot)
	}
}

func verify(path string) (*piv.Attestation, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		found = append(found, certificate)
	}
	if len(found) != 2 {
		return nil, fmt.Errorf("%s has %d certificates", path, len(found))
	}
	return piv.Verify(found[1], found[0])
}
