// Tells whom Go, and so an API server, takes the bearer of a certificate for.
//
// Each line of standard input is a request or a certificate in base64: `request ` and the PEM text, `certificate ` and
// DER. Each line of standard output is JSON: user and groups, or null for what is refused. Of a request they are those
// of the certificate that Kubernetes' signer makes of it. For `client `, a certificate and that of its CA, it is why the
// bearer isn't let in, or null.
package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"strings"
)

type identity struct {
	User   string   `json:"user"`
	Groups []string `json:"groups"`
}

func main() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		kind, text, _ := strings.Cut(lines.Text(), " ")
		text, authority, _ := strings.Cut(text, " ")
		bytes, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			panic(err)
		}
		if kind == "client" {
			answers.Encode(refusal(bytes, authority))
			continue
		}
		if kind == "request" {
			bytes, err = signed(bytes, key)
		}
		answers.Encode(ofCertificate(bytes, err))
	}
}

// As authenticated by k8s.io/apiserver/pkg/authentication/request/x509.
func ofCertificate(der []byte, err error) *identity {
	if err != nil {
		return nil
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil
	}
	subject := certificate.Subject
	return &identity{subject.CommonName, append([]string{}, subject.Organization...)}
}

// As verified by k8s.io/apiserver/pkg/authentication/request/x509.
func refusal(der []byte, authority string) *string {
	bytes, err := base64.StdEncoding.DecodeString(authority)
	if err != nil {
		panic(err)
	}
	root, err := x509.ParseCertificate(bytes)
	if err != nil {
		panic(err)
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	options.Roots.AddCert(root)
	certificate, err := x509.ParseCertificate(der)
	if err == nil {
		_, err = certificate.Verify(options)
	}
	if err == nil {
		return nil
	}
	text := err.Error()
	return &text
}

// As read by ParseCSR of k8s.io/kubernetes/pkg/apis/certificates, and signed by Sign of
// k8s.io/kubernetes/pkg/controller/certificates/authority.
func signed(text []byte, key *ecdsa.PrivateKey) ([]byte, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("no request")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: request.Subject}
	return x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
}
