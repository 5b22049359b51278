// Asks a signer of service account tokens as an API server does, with the client that is generated from the API's proto
// file; and asks an API server for tokens.
//
//	signer-client keys SOCKET                        the published keys, in JSON
//	signer-client metadata SOCKET                    the longest life of a token, in seconds
//	signer-client sign SOCKET CLAIMS [TIMEOUT]       a token of these claims; its signature is verified
//	signer-client load SOCKET AT-ONCE COUNT          so many tokens, and how many there were in a second
//	signer-client api DIR SERVER AT-ONCE COUNT       the same from the API server of the test cluster in DIR
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	_ "crypto/sha256"
	_ "crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"
)

const claims = `{"aud":["https://test-cluster.invalid"],"exp":4000000000,"iat":1800000000,"iss":"https://test-cluster.invalid",` +
	`"jti":"8c1d7a6e-6f5a-4f0e-9d55-3fb1f0d8a111","kubernetes.io":{"namespace":"default","pod":{"name":"web-5d9c7b6f4-abcde",` +
	`"uid":"11111111-2222-3333-4444-555555555555"},"serviceaccount":{"name":"web","uid":"11111111-2222-3333-4444-666666666666"}},` +
	`"nbf":1800000000,"sub":"system:serviceaccount:default:web"}`

func main() {
	log.SetFlags(0)
	log.SetPrefix("signer-client: ")
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 2 && arguments[0] == "keys":
		keys(dial(arguments[1]))
	case len(arguments) == 2 && arguments[0] == "metadata":
		answer := must(dial(arguments[1]).Metadata(context.Background(), &externaljwt.MetadataRequest{}))
		fmt.Println(answer.MaxTokenExpirationSeconds)
	case len(arguments) >= 3 && arguments[0] == "sign":
		timeout := time.Minute
		if len(arguments) == 4 {
			timeout = must(time.ParseDuration(arguments[3]))
		}
		fmt.Println(sign(dial(arguments[1]), arguments[2], timeout))
	case len(arguments) == 4 && arguments[0] == "load":
		client := dial(arguments[1])
		request := &externaljwt.SignJWTRequest{Claims: base64.RawURLEncoding.EncodeToString([]byte(claims))}
		load(arguments[2], arguments[3], func() error {
			_, err := client.Sign(context.Background(), request)
			return err
		})
	case len(arguments) == 5 && arguments[0] == "api":
		load(arguments[3], arguments[4], requests(arguments[1], arguments[2]))
	default:
		log.Fatal("usage: signer-client keys|metadata|sign|load|api …")
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func dial(socket string) externaljwt.ExternalJWTSignerClient {
	return externaljwt.NewExternalJWTSignerClient(must(grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))))
}

func fetch(client externaljwt.ExternalJWTSignerClient) *externaljwt.FetchKeysResponse {
	return must(client.FetchKeys(context.Background(), &externaljwt.FetchKeysRequest{}))
}

func keys(client externaljwt.ExternalJWTSignerClient) {
	answer := fetch(client)
	type key struct {
		ID     string `json:"id"`
		Hidden bool   `json:"hidden"`
	}
	found := []key{}
	for _, one := range answer.Keys {
		must(x509.ParsePKIXPublicKey(one.Key))
		found = append(found, key{one.KeyId, one.ExcludeFromOidcDiscovery})
	}
	fmt.Println(string(must(json.Marshal(map[string]any{
		"keys": found, "refresh": answer.RefreshHintSeconds, "age": time.Since(answer.DataTimestamp.AsTime()).Seconds(),
	}))))
}

// sign has a token made, and verifies it by the key that the signer publishes for it.
func sign(client externaljwt.ExternalJWTSignerClient, claims string, timeout time.Duration) string {
	ctx, end := context.WithTimeout(context.Background(), timeout)
	defer end()
	payload := base64.RawURLEncoding.EncodeToString([]byte(claims))
	answer := must(client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: payload}))
	var header struct{ Alg, Kid, Typ string }
	must(0, json.Unmarshal(must(base64.RawURLEncoding.DecodeString(answer.Header)), &header))
	signature := must(base64.RawURLEncoding.DecodeString(answer.Signature))
	for _, one := range fetch(client).Keys {
		if one.KeyId == header.Kid {
			verify(must(x509.ParsePKIXPublicKey(one.Key)), header.Alg, answer.Header+"."+payload, signature)
			return answer.Header + "." + payload + "." + answer.Signature
		}
	}
	log.Fatal("no key is published under the token's kid")
	return ""
}

func verify(key any, algorithm, signed string, signature []byte) {
	hashes := map[string]crypto.Hash{"RS256": crypto.SHA256, "ES256": crypto.SHA256, "ES384": crypto.SHA384, "ES512": crypto.SHA512}
	hash := hashes[algorithm].New()
	hash.Write([]byte(signed))
	digest := hash.Sum(nil)
	valid := false
	switch key := key.(type) {
	case *rsa.PublicKey:
		valid = rsa.VerifyPKCS1v15(key, crypto.SHA256, digest, signature) == nil
	case *ecdsa.PublicKey:
		half := len(signature) / 2
		r, s := new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])
		valid = half == (key.Curve.Params().BitSize+7)/8 && ecdsa.Verify(key, digest, r, s)
	}
	if !valid {
		log.Fatal("the signature is not the key's")
	}
}

// requests asks the API server for a token of the account default/web, as the cluster's administrator.
func requests(dir, server string) func() error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(dir + "/ca.pem")))
	administrator := must(tls.LoadX509KeyPair(dir+"/admin.pem", dir+"/admin.key"))
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{administrator}},
	}}
	// With a connection at hand, a thousand requests share some, as a client's do; without one each would make its own.
	must(client.Get(server + "/version")).Body.Close()
	url := server + "/api/v1/namespaces/default/serviceaccounts/web/token"
	body := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["https://test-cluster.invalid"]}}`)
	return func() error {
		answer, err := client.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusCreated {
			err = fmt.Errorf("%s: %s", answer.Status, text)
		}
		return err
	}
}

// load does it so often, by so many at once.
func load(atOnce, count string, do func() error) {
	workers, left := must(strconv.Atoi(atOnce)), atomic.Int64{}
	total := must(strconv.Atoi(count))
	left.Store(int64(total))
	var failed atomic.Int64
	var first sync.Once
	var all sync.WaitGroup
	started := time.Now()
	for range workers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					failed.Add(1)
					first.Do(func() { log.Print(err) })
				}
			}
		})
	}
	all.Wait()
	rate := float64(total) / time.Since(started).Seconds()
	fmt.Printf("%d ok, %d failed, %.1f per second\n", int64(total)-failed.Load(), failed.Load(), rate)
}
