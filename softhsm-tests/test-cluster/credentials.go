package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// writeCredentials makes the CA, the servers' certificates, an administrator's, and the one that the
// API server shows to the kubelet.
func writeCredentials(dir, server string) error {
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test-cluster CA"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caKey, err := issue(dir, "ca", ca, ca, nil)
	if err != nil {
		return err
	}
	leaf := func(serial int64, name pkix.Name, usage x509.ExtKeyUsage) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial),
			Subject:      name,
			NotBefore:    ca.NotBefore,
			NotAfter:     ca.NotAfter,
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		}
	}
	serverCertificate := leaf(2, pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth)
	serverCertificate.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	serverCertificate.DNSNames = []string{"localhost"}
	if _, err := issue(dir, "server", serverCertificate, ca, caKey); err != nil {
		return err
	}
	kubelet := leaf(4, pkix.Name{CommonName: "kubelet"}, x509.ExtKeyUsageServerAuth)
	kubelet.IPAddresses = serverCertificate.IPAddresses
	if _, err := issue(dir, "kubelet", kubelet, ca, caKey); err != nil {
		return err
	}
	// Its own issuer: a certificate of the CA makes a user of the API server, not of the kubelet.
	kubeletClient := leaf(5, pkix.Name{CommonName: "kube-apiserver-kubelet-client"}, x509.ExtKeyUsageClientAuth)
	if _, err := issue(dir, "kubelet-client", kubeletClient, kubeletClient, nil); err != nil {
		return err
	}
	admin := pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	if _, err := issue(dir, "admin", leaf(3, admin, x509.ExtKeyUsageClientAuth), ca, caKey); err != nil {
		return err
	}
	return writeKubeconfig(dir, server)
}

// issue writes NAME.pem and NAME.key; without a signer the certificate signs itself.
func issue(dir, name string, certificate, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, certificate, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "EC PRIVATE KEY", Bytes: sec1},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	return key, nil
}

func writeKubeconfig(dir, server string) error {
	inline := map[string]string{}
	for _, file := range []string{"ca.pem", "admin.pem", "admin.key"} {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		inline[file] = base64.StdEncoding.EncodeToString(content)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {server: "%s", certificate-authority-data: %s}
users:
- name: admin
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: admin
  context: {cluster: test, user: admin}
current-context: admin
`, server, inline["ca.pem"], inline["admin.pem"], inline["admin.key"])
	return os.WriteFile(filepath.Join(dir, "admin.kubeconfig"), []byte(text), 0o600)
}

// awaitReady asks as the administrator until the server says that it is ready.
func awaitReady(ctx context.Context, dir, server string, failed <-chan error) error {
	admin, err := tls.LoadX509KeyPair(filepath.Join(dir, "admin.pem"), filepath.Join(dir, "admin.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := &http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{admin},
		}},
	}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		if response, err := client.Get(server + "/readyz"); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
	return fmt.Errorf("kube-apiserver was not ready within two minutes")
}
