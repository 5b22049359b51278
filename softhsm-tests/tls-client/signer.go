// Package externalsigner is a client of the external signer protocol: a TLS client key that another
// program holds. It is what a Kubernetes client would do, in the smallest form that works.
//
// One process is run for the certificate, and one for each TLS handshake. The request travels in an
// environment variable of that process alone; the answer is the one JSON document it prints.
package externalsigner

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
)

const (
	apiVersion      = "external-signer.authentication.k8s.io/v1alpha1"
	requestVariable = "EXTERNAL_SIGNER_PLUGIN_CONFIG"
)

// Signer is a private key held by a plugin. It implements crypto.Signer.
type Signer struct {
	plugin        string
	configuration map[string]string
	certificate   *x509.Certificate
}

var _ crypto.Signer = (*Signer)(nil)

// New asks the plugin for the certificate that the configuration names. The configuration is the
// kubeconfig's `auth-provider.config`, as it stands.
func New(plugin string, configuration map[string]string) (*Signer, error) {
	signer := &Signer{plugin: plugin, configuration: configuration}
	answer, err := signer.run(request{Kind: "CertificateRequest"}, "CertificateResponse")
	if err != nil {
		return nil, err
	}
	signer.certificate, err = x509.ParseCertificate(answer.Certificate)
	if err != nil {
		return nil, fmt.Errorf("external signer's certificate: %w", err)
	}
	return signer, nil
}

// Public is the certificate's public key.
func (s *Signer) Public() crypto.PublicKey {
	return s.certificate.PublicKey
}

// Sign has the plugin sign a digest, or for Ed25519 the message itself. There is nothing random to
// do here.
func (s *Signer) Sign(_ io.Reader, digest []byte, options crypto.SignerOpts) ([]byte, error) {
	// The protocol carries Go's own name of the type, and its value as JSON inside a string.
	encoded, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	answer, err := s.run(request{
		Kind:           "SignRequest",
		Digest:         digest,
		SignerOptsType: fmt.Sprintf("%T", options),
		SignerOpts:     string(encoded),
	}, "SignResponse")
	if err != nil {
		return nil, err
	}
	return answer.Signature, nil
}

// ClientCertificate has the signature of tls.Config's GetClientCertificate.
func (s *Signer) ClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return &tls.Certificate{
		Certificate: [][]byte{s.certificate.Raw},
		PrivateKey:  s,
		Leaf:        s.certificate,
	}, nil
}

// request is both requests of the protocol. Go writes a []byte as base64.
type request struct {
	APIVersion     string            `json:"apiVersion"`
	Kind           string            `json:"kind"`
	Configuration  map[string]string `json:"configuration"`
	Digest         []byte            `json:"digest,omitempty"`
	SignerOptsType string            `json:"signerOptsType,omitempty"`
	SignerOpts     string            `json:"signerOpts,omitempty"`
}

type response struct {
	APIVersion  string `json:"apiVersion"`
	Kind        string `json:"kind"`
	Certificate []byte `json:"certificate"`
	Signature   []byte `json:"signature"`
}

// run starts the plugin for one request. Its standard input and error are this process's, so that
// it can talk to the person in front of it; its exit status is part of the error.
func (s *Signer) run(request request, answerKind string) (*response, error) {
	request.APIVersion = apiVersion
	request.Configuration = s.configuration
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}

	var output bytes.Buffer
	plugin := exec.Command(s.plugin)
	plugin.Env = append(os.Environ(), requestVariable+"="+string(text))
	plugin.Stdin = os.Stdin
	plugin.Stdout = &output
	plugin.Stderr = os.Stderr
	if err := plugin.Run(); err != nil {
		return nil, fmt.Errorf("external signer: %s: %w", request.Kind, err)
	}

	// Unmarshal refuses anything before or after the one document.
	var answer response
	if err := json.Unmarshal(output.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("external signer's answer: %w", err)
	}
	if answer.APIVersion != apiVersion || answer.Kind != answerKind {
		return nil, fmt.Errorf("external signer's answer is %s of %s, not %s of %s",
			answer.Kind, answer.APIVersion, answerKind, apiVersion)
	}
	return &answer, nil
}
