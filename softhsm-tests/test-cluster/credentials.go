package main

import (
	"crypto"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// writeCredentials makes the CA, the servers' certificates, an administrator's, and the one that the
// API server shows to the kubelet. It returns the administrator's client.
func writeCredentials(dir, server string) kubernetes.Interface {
	config := func(name string, usages ...x509.ExtKeyUsage) *pkiutil.CertConfig {
		return &pkiutil.CertConfig{
			Config:              certutil.Config{CommonName: name, Usages: usages, NotBefore: time.Now().Add(-time.Hour)},
			NotAfter:            time.Now().Add(24 * time.Hour),
			EncryptionAlgorithm: kubeadm.EncryptionAlgorithmECDSAP256,
		}
	}
	store := func(name string, certificate *x509.Certificate, key crypto.Signer, err error) [2][]byte {
		check(err)
		pair := [2][]byte{pkiutil.EncodeCertPEM(certificate), must(keyutil.MarshalPrivateKeyToPEM(key))}
		write(dir, name+".pem", pair[0])
		write(dir, name+".key", pair[1])
		return pair
	}
	ca, caKey, err := pkiutil.NewCertificateAuthority(config("test-cluster CA"))
	authority := store("ca", ca, caKey, err)[0]
	for _, name := range []string{"kube-apiserver", "kubelet"} {
		config := config(name, x509.ExtKeyUsageServerAuth)
		config.AltNames = certutil.AltNames{DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
		server, key, err := pkiutil.NewCertAndKey(ca, caKey, config)
		store(name, server, key, err)
	}
	// Its own issuer: a certificate of the CA makes a user of the API server, not of the kubelet.
	client, clientKey, err := pkiutil.NewCertificateAuthority(config("kube-apiserver-kubelet-client"))
	store("kubelet-client", client, clientKey, err)
	administrator := config("admin", x509.ExtKeyUsageClientAuth)
	administrator.Organization = []string{"system:masters"}
	admin, adminKey, err := pkiutil.NewCertAndKey(ca, caKey, administrator)
	pair := store("admin", admin, adminKey, err)
	access := kubeconfig.CreateWithCerts(server, "test", "admin", authority, pair[1], pair[0])
	check(clientcmd.WriteToFile(*access, filepath.Join(dir, "admin.kubeconfig")))
	return must(kubernetes.NewForConfig(must(clientcmd.NewDefaultClientConfig(*access, nil).ClientConfig())))
}

func write(dir, name string, content []byte) {
	check(os.WriteFile(filepath.Join(dir, name), content, 0o600))
}
