// The main case of the project: a TLS connection authenticated with a key in a token, as the peer
// sees it.

package externalsigner

import (
	"crypto/tls"
	"regexp"
	"strings"
	"sync"
	"testing"
)

var versions = []struct {
	name   string
	number uint16
}{
	{"TLS 1.3", tls.VersionTLS13},
	{"TLS 1.2", tls.VersionTLS12},
}

func TestGoServer(t *testing.T) {
	authority := newAuthority(t)
	newToken(t, authority, everyType...)
	server := goServer(t, authority)
	for _, kind := range everyType {
		signer := newSigner(t, kind)
		for _, version := range versions {
			t.Run(kind.name+" "+version.name, func(t *testing.T) {
				page, err := visit(server, authority, signer, version.number)
				check(t, err)
				expect(t, page, "^CN="+kind.user()+"\n")
			})
		}
	}
}

func TestOpenSSL(t *testing.T) {
	authority := newAuthority(t)
	newToken(t, authority, everyType...)
	server := opensslServer(t, authority)
	for _, kind := range everyType {
		signer := newSigner(t, kind)
		for _, version := range versions {
			t.Run(kind.name+" "+version.name, func(t *testing.T) {
				page, err := visit(server, authority, signer, version.number)
				check(t, err)
				expectSubject(t, page, kind.user())
				if strings.HasPrefix(kind.name, "RSA") {
					expect(t, page, `Peer signature type: (RSA-PSS|rsa_pss_rsae_sha256)\n`)
				}
			})
		}
	}
}

func TestServerThatWantsPKCS1v15(t *testing.T) {
	authority := newAuthority(t)
	newToken(t, authority, rsa2048)
	signer := newSigner(t, rsa2048)
	for _, hash := range []string{"SHA256", "SHA384", "SHA512"} {
		t.Run(hash, func(t *testing.T) {
			server := opensslServer(t, authority, "-client_sigalgs", "RSA+"+hash)
			page, err := visit(server, authority, signer, tls.VersionTLS12)
			check(t, err)
			expectSubject(t, page, rsa2048.user())
			expect(t, page, `Peer signature type: (RSA|rsa_pkcs1_`+strings.ToLower(hash)+`)\n`)
			if strings.Contains(page, "Peer signing digest: ") {
				expect(t, page, "Peer signing digest: "+hash+"\n")
			}
		})
	}
}

// A client's first ten requests make ten connections, and ten processes that sign.
func TestTenConnectionsAtOnce(t *testing.T) {
	authority := newAuthority(t)
	newToken(t, authority, rsa2048)
	server := goServer(t, authority)
	signer := newSigner(t, rsa2048)
	var all sync.WaitGroup
	for index := 0; index < 10; index++ {
		all.Add(1)
		go func() {
			defer all.Done()
			page, err := visit(server, authority, signer, tls.VersionTLS13)
			if err != nil {
				t.Error(err)
			} else if !strings.HasPrefix(page, "CN="+rsa2048.user()+"\n") {
				t.Errorf("the peer saw %q", page)
			}
		}()
	}
	all.Wait()
}

// The user of a client learns no more than the exit status; it must say that it was the login.
func TestWrongPINReachesTheUser(t *testing.T) {
	authority := newAuthority(t)
	newToken(t, authority, p256)
	server := goServer(t, authority)
	signer := newSigner(t, p256)
	t.Setenv(pinVariable, "999999")
	for _, version := range versions {
		t.Run(version.name, func(t *testing.T) {
			_, err := visit(server, authority, signer, version.number)
			if err == nil || !strings.Contains(err.Error(), "exit status 7") {
				t.Errorf("got %v, want exit status 7", err)
			}
		})
	}
}

// expectSubject looks in openssl's account for the subject of the client's certificate.
func expectSubject(t *testing.T, page, user string) {
	t.Helper()
	expect(t, page, `Subject: .*CN ?= ?`+user+`\n`)
}

func expect(t *testing.T, page, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(page) {
		t.Errorf("the peer's page doesn't match %q:\n%s", pattern, page)
	}
}
