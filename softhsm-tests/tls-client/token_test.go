// The fixtures: a certificate authority, a SoftHSM token with client keys, and where things are.
// A tool that is missing fails the test.

package externalsigner

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	tokenLabel = "tls-client"
	pin        = "1234"
	// The plugin reads the PIN from this variable.
	pinVariable = "TLS_CLIENT_TEST_PIN"
)

// keyType is a kind of key that a client certificate can have.
type keyType struct {
	name     string
	generate func() (crypto.Signer, error)
}

var (
	rsa2048   = keyType{"RSA-2048", func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) }}
	rsa4096   = keyType{"RSA-4096", func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) }}
	p256      = keyType{"P-256", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }}
	p384      = keyType{"P-384", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) }}
	p521      = keyType{"P-521", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) }}
	edwards   = keyType{"Ed25519", func() (crypto.Signer, error) { _, key, err := ed25519.GenerateKey(rand.Reader); return key, err }}
	everyType = []keyType{rsa2048, rsa4096, p256, p384, p521, edwards}
)

// user is the common name on the certificate of a key of this type.
func (k keyType) user() string { return "user of " + k.name }

// authority issues certificates to the servers and the clients of a test.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := p256.generate()
	check(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	certificate, err := x509.ParseCertificate(der)
	check(t, err)
	return &authority{certificate, key}
}

func (a *authority) issue(t *testing.T, name string, key crypto.PublicKey, usage x509.ExtKeyUsage) []byte {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"testers"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.certificate, key, a.key)
	check(t, err)
	return der
}

func (a *authority) server(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := p256.generate()
	check(t, err)
	der := a.issue(t, "test server", key.Public(), x509.ExtKeyUsageServerAuth)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// newToken makes a SoftHSM token in a directory of the test, with a key and a certificate of each
// type, and points SoftHSM and the plugin's PIN at it until the test ends.
func newToken(t *testing.T, authority *authority, types ...keyType) {
	t.Helper()
	directory := t.TempDir()
	tokens := filepath.Join(directory, "tokens")
	check(t, os.Mkdir(tokens, 0o700))
	configuration := filepath.Join(directory, "softhsm2.conf")
	check(t, os.WriteFile(configuration, []byte("directories.tokendir = "+tokens+"\n"), 0o600))
	t.Setenv("SOFTHSM2_CONF", configuration)
	t.Setenv(pinVariable, pin)

	tool(t, "softhsm2-util", "--init-token", "--free", "--label", tokenLabel, "--pin", pin, "--so-pin", pin)
	for index, kind := range types {
		key, err := kind.generate()
		check(t, err)
		certificate := filepath.Join(directory, "certificate.der")
		check(t, os.WriteFile(certificate,
			authority.issue(t, kind.user(), key.Public(), x509.ExtKeyUsageClientAuth), 0o600))
		der, err := x509.MarshalPKCS8PrivateKey(key)
		check(t, err)
		file := filepath.Join(directory, "key.pem")
		writePEM(t, file, "PRIVATE KEY", der)

		id := fmt.Sprintf("%02x", index+1)
		if kind.name == edwards.name {
			// softhsm2-util can't import an Ed25519 key.
			t.Setenv("GNUTLS_PIN", pin)
			tool(t, "p11tool", "--provider", module(t), "--login", "--batch", "--write",
				"--load-privkey", file, "--id", id, "--label", kind.name, "pkcs11:token="+tokenLabel)
		} else {
			tool(t, "softhsm2-util", "--import", file, "--token", tokenLabel, "--pin", pin,
				"--id", id, "--label", kind.name)
		}
		tool(t, "pkcs11-tool", "--module", module(t), "--token-label", tokenLabel, "--login", "--pin", pin,
			"--write-object", certificate, "--type", "cert", "--id", id, "--label", kind.name)
		// From here on the key is in the token alone.
		check(t, os.Remove(file))
	}
}

// newSigner is the client's view of the token's key of this type.
func newSigner(t *testing.T, kind keyType) *Signer {
	t.Helper()
	plugin := os.Getenv("PKCS11_EXTERNAL_SIGNER")
	if plugin == "" {
		t.Fatal("PKCS11_EXTERNAL_SIGNER must be the path of the program to test")
	}
	signer, err := New(plugin, map[string]string{
		"pathExec":    plugin,
		"pathLib":     module(t),
		"tokenLabel":  tokenLabel,
		"objectLabel": kind.name,
		"pinSource":   "env:" + pinVariable,
	})
	check(t, err)
	return signer
}

// module is the SoftHSM library.
func module(t *testing.T) string {
	t.Helper()
	path := os.Getenv("SOFTHSM2_MODULE")
	if path == "" {
		t.Fatal("SOFTHSM2_MODULE must be the path of the SoftHSM library")
	}
	return path
}

func tool(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if output, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, arguments, err, output)
	}
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	check(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
