package externalsigner

import (
	"crypto"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd/api"
)

// signer writes a program that stands in for the plugin, for what the real one never does; it is
// named relative to the kubeconfig in the same directory.
func signer(t *testing.T, script string) *Signer {
	t.Helper()
	directory := t.TempDir()
	program := filepath.Join(directory, "plugin")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	signer, err := New(&api.AuthInfo{
		LocationOfOrigin: filepath.Join(directory, "kubeconfig"),
		AuthProvider: &api.AuthProviderConfig{
			Name:   "externalSigner",
			Config: map[string]string{"pathExec": "./plugin", "objectId": "2"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

func sign(signer *Signer) ([]byte, error) {
	return signer.Sign(nil, []byte("digest"), crypto.SHA256)
}

const answer = `{"apiVersion":"external-signer.authentication.k8s.io/v1alpha1","kind":"SignResponse","signature":"c2lnbmF0dXJl"}`

func TestTheRequestIsInTheProgramsEnvironmentAlone(t *testing.T) {
	t.Setenv(requestVariable, "somebody else's")
	file := filepath.Join(t.TempDir(), "request")
	t.Setenv("REQUEST_FILE", file)
	signature, err := sign(signer(t, `printf %s "$`+requestVariable+`" > "$REQUEST_FILE"; echo '`+answer+`'`))
	if err != nil || string(signature) != "signature" {
		t.Fatalf("%q, %v", signature, err)
	}
	request, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"kind":"SignRequest"`, `"digest":"ZGlnZXN0"`, `"signerOptsType":"crypto.Hash"`,
		`"signerOpts":"5"`, `"objectId":"2"`,
	} {
		if !strings.Contains(string(request), part) {
			t.Errorf("no %s in %s", part, request)
		}
	}
	if own := os.Getenv(requestVariable); own != "somebody else's" {
		t.Errorf("our own environment has %q", own)
	}
}

func TestWhatIsNoAnswerIsRefused(t *testing.T) {
	for name, script := range map[string]string{
		"nothing":            "",
		"something before":   "echo a log line; echo '" + answer + "'",
		"something behind":   "echo '" + answer + "'; echo '{}'",
		"another kind":       "echo '" + strings.Replace(answer, "SignResponse", "CertificateResponse", 1) + "'",
		"another version":    "echo '" + strings.Replace(answer, "v1alpha1", "v2", 1) + "'",
		"no signature":       "echo '" + strings.Replace(answer, "c2lnbmF0dXJl", "", 1) + "'",
		"a failure with one": "echo '" + answer + "'; exit 7",
	} {
		t.Run(name, func(t *testing.T) {
			if signature, err := sign(signer(t, script)); err == nil {
				t.Fatalf("taken for an answer: %q", signature)
			}
		})
	}
	_, err := sign(signer(t, "exit 7"))
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("the exit status is not in %v", err)
	}
}

func TestTheCertificateIsAskedForOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", file)
	signer := signer(t, `echo call >> "$CALLS"; exit 6`)
	for range 3 {
		if _, err := signer.Certificate(); err == nil {
			t.Fatal("there is no certificate")
		}
	}
	if calls, _ := os.ReadFile(file); string(calls) != "call\n" {
		t.Errorf("%q", calls)
	}
}

func TestAUserWithoutAnExternalSignerIsRefused(t *testing.T) {
	for _, user := range []*api.AuthInfo{
		{},
		{AuthProvider: &api.AuthProviderConfig{Name: "oidc"}},
		{AuthProvider: &api.AuthProviderConfig{Name: "externalSigner"}},
	} {
		if _, err := New(user); err == nil {
			t.Errorf("accepted: %v", user)
		}
	}
}
