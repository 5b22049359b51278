// Package externalsigner is the client's half of the Kubernetes enhancement proposal "External TLS
// certificate authenticator": it gives client-go connections whose client key is somewhere else,
// behind a program that is asked for the certificate once and for a signature per TLS handshake.
//
// It is one file, written to be read and to be copied into other programs.
package externalsigner

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	// providerName is what the kubeconfig's auth-provider is called.
	providerName = "externalSigner"
	apiVersion   = "external-signer.authentication.k8s.io/v1alpha1"
	// requestVariable holds the request in the program's environment, and in no other.
	requestVariable = "EXTERNAL_SIGNER_PLUGIN_CONFIG"
	// handshakeTimeout is client-go's own: a PIN typed and a token touched must fit in it.
	handshakeTimeout = 10 * time.Second
)

// Signer is the key that lives elsewhere, as a crypto.Signer. It may be used by many connections
// at once.
type Signer struct {
	program       string
	configuration map[string]string

	ask         sync.Once
	certificate *tls.Certificate
	failure     error

	signatures atomic.Int64
}

// New makes the signer that a kubeconfig's user names. A relative pathExec is relative to the
// kubeconfig that the user stands in, and is never looked for in PATH.
func New(user *api.AuthInfo) (*Signer, error) {
	if user.AuthProvider == nil || user.AuthProvider.Name != providerName {
		return nil, fmt.Errorf("the user has no auth-provider %s", providerName)
	}
	program := user.AuthProvider.Config["pathExec"]
	if program == "" {
		return nil, fmt.Errorf("auth-provider %s: pathExec is not set", providerName)
	}
	if !filepath.IsAbs(program) {
		program = filepath.Join(filepath.Dir(user.LocationOfOrigin), program)
	}
	return &Signer{program: program, configuration: user.AuthProvider.Config}, nil
}

// Apply makes the connections of a client-go configuration present the signer's certificate. It
// replaces what the configuration says of TLS and proxies by a transport that does the same.
//
// client-go's own hook for providers (WrapTransport) can't: it sees requests, not handshakes.
// Programs that exec, attach or forward ports build connections of their own in client-go and are
// not covered.
func (s *Signer) Apply(config *rest.Config, adjust ...func(*tls.Config)) error {
	// Left in, client-go would look for a provider of this name, and there is none.
	config.AuthProvider = nil
	// The CA, the server's name and whether to check it.
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{}
	}
	tlsConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return s.Certificate()
	}
	for _, adjust := range adjust {
		adjust(tlsConfig)
	}
	proxy, dial := config.Proxy, config.Dial
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	config.Transport = utilnet.SetTransportDefaults(&http.Transport{
		Proxy:               proxy,
		DialContext:         dial,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: 25,
	})
	// client-go refuses a transport beside settings that it would have to bring about itself.
	config.TLSClientConfig = rest.TLSClientConfig{}
	config.Proxy, config.Dial = nil, nil
	return nil
}

// Certificate asks for the certificate the first time, and remembers the answer: there is one
// request for it in a process. Call it before the first connection, and what it takes (a program
// started, a token found) is not taken from the handshake's time.
func (s *Signer) Certificate() (*tls.Certificate, error) {
	s.ask.Do(func() { s.certificate, s.failure = s.requestCertificate() })
	return s.certificate, s.failure
}

// Public is part of crypto.Signer. TLS calls it only with the certificate at hand.
func (s *Signer) Public() crypto.PublicKey {
	certificate, err := s.Certificate()
	if err != nil {
		return nil
	}
	return certificate.Leaf.PublicKey
}

// Sign is part of crypto.Signer: one request for a signature. The random source is the token's.
func (s *Signer) Sign(_ io.Reader, digest []byte, options crypto.SignerOpts) ([]byte, error) {
	encoded, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	var response struct {
		Signature []byte `json:"signature"`
	}
	err = s.request(map[string]any{
		"kind":           "SignRequest",
		"digest":         digest,
		"signerOptsType": fmt.Sprintf("%T", options),
		"signerOpts":     string(encoded),
	}, "SignResponse", &response)
	if err == nil && len(response.Signature) == 0 {
		err = fmt.Errorf("%s: the answer has no signature", s.program)
	}
	s.signatures.Add(1)
	return response.Signature, err
}

// Signatures tells how many signatures were asked for.
func (s *Signer) Signatures() int64 { return s.signatures.Load() }

func (s *Signer) requestCertificate() (*tls.Certificate, error) {
	var response struct {
		Certificate []byte `json:"certificate"`
	}
	err := s.request(map[string]any{"kind": "CertificateRequest"}, "CertificateResponse", &response)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(response.Certificate)
	if err != nil {
		return nil, fmt.Errorf("%s: the answer is no certificate: %w", s.program, err)
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, Leaf: leaf, PrivateKey: s}, nil
}

// request runs the program once. Standard input and error are the client's own, so that the
// program can speak to a person; standard output is the answer and nothing else.
func (s *Signer) request(request map[string]any, kind string, response any) error {
	request["apiVersion"] = apiVersion
	request["configuration"] = s.configuration
	encoded, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var output bytes.Buffer
	command := exec.Command(s.program)
	command.Env = environment(string(encoded))
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, &output, os.Stderr
	if err := command.Run(); err != nil {
		// The reason stands on standard error.
		return fmt.Errorf("%s: %w", s.program, err)
	}
	var header struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	// Unmarshal refuses what stands behind the document.
	for _, part := range []any{&header, response} {
		if err := json.Unmarshal(output.Bytes(), part); err != nil {
			return fmt.Errorf("%s: the answer is not one JSON document: %w", s.program, err)
		}
	}
	if header.APIVersion != apiVersion || header.Kind != kind {
		return fmt.Errorf("%s: the answer is a %s of %s", s.program, header.Kind, header.APIVersion)
	}
	return nil
}

// environment is this process's, with the request in place of any other.
func environment(request string) []string {
	var variables []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, requestVariable+"=") {
			variables = append(variables, variable)
		}
	}
	return append(variables, requestVariable+"="+request)
}
