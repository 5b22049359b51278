// The peers: HTTPS servers that insist on a client certificate and answer with what they saw of it.

package externalsigner

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// goServer's page is "CN=…" and the TLS version.
func goServer(t *testing.T, authority *authority) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "CN=%s\nversion %x\n", r.TLS.PeerCertificates[0].Subject.CommonName, r.TLS.Version)
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{authority.server(t)},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    authority.pool(),
	}
	// The tests that expect a refusal look at the client's side of it.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// opensslServer is `openssl s_server`; its page is its own account of the connection.
func opensslServer(t *testing.T, authority *authority, options ...string) (url string) {
	t.Helper()
	directory := t.TempDir()
	identity := authority.server(t)
	key, err := x509.MarshalPKCS8PrivateKey(identity.PrivateKey)
	check(t, err)
	keyFile := filepath.Join(directory, "key.pem")
	certificateFile := filepath.Join(directory, "certificate.pem")
	authorityFile := filepath.Join(directory, "authority.pem")
	writePEM(t, keyFile, "PRIVATE KEY", key)
	writePEM(t, certificateFile, "CERTIFICATE", identity.Certificate[0])
	writePEM(t, authorityFile, "CERTIFICATE", authority.certificate.Raw)

	server := exec.Command("openssl", append([]string{
		"s_server", "-accept", "127.0.0.1:0", "-www",
		"-key", keyFile, "-cert", certificateFile,
		"-CAfile", authorityFile, "-Verify", "1", "-verify_return_error", "-verify_quiet",
	}, options...)...)
	server.Stderr = os.Stderr
	output, err := server.StdoutPipe()
	check(t, err)
	check(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})

	// It tells the port it was given: ACCEPT 127.0.0.1:PORT
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ACCEPT ") {
			go func() { _, _ = io.Copy(io.Discard, output) }()
			return "https://" + strings.TrimPrefix(lines.Text(), "ACCEPT ")
		}
	}
	t.Fatal("openssl s_server ended before it accepted connections")
	return ""
}

// visit fetches the peer's page over a connection of its own.
func visit(url string, authority *authority, signer *Signer, version uint16) (page string, err error) {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs:              authority.pool(),
			MinVersion:           version,
			MaxVersion:           version,
			GetClientCertificate: signer.ClientCertificate,
		},
		// What client-go allows.
		TLSHandshakeTimeout: 10 * time.Second,
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
