// A small Kubernetes client on client-go that uses the proposal's kubeconfig as it stands: the
// other half of pkcs11-external-signer, for its tests and for reading.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"pkcs11-external-signer/client-go/externalsigner"
)

const usage = `usage: client-go [--tls-max 1.2|1.3] COMMAND
  whoami         as whom the API server knows us
  get PATH       what a server answers
  create PATH    what it answers to the YAML on standard input
  parallel N     N requests at once, each on a connection of its own
  sequence N     N requests, one after the other
`

func main() {
	log.SetFlags(0)
	log.SetPrefix("client-go: ")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	tlsMax := flag.String("tls-max", "1.3", "")
	flag.Parse()
	config, signer, err := load(map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[*tlsMax])
	if err == nil {
		err = run(context.Background(), config, signer, flag.Arg(0), flag.Arg(1))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, config *rest.Config, signer *externalsigner.Signer, command, argument string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(argument)
	switch {
	case command == "whoami":
		user, err := review(ctx, client)
		if err == nil {
			fmt.Printf("user: %s\ngroups: %s\n", user.Username, strings.Join(user.Groups, " "))
		}
		return err
	case command == "get":
		page, err := client.RESTClient().Get().AbsPath(argument).DoRaw(ctx)
		fmt.Printf("%s", page)
		return err
	case command == "create":
		request := client.RESTClient().Post().AbsPath(argument).SetHeader("Content-Type", "application/yaml")
		answer, err := request.Body(os.Stdin).DoRaw(ctx)
		fmt.Printf("%s", answer)
		return err
	case command == "parallel" && n > 0:
		return parallel(ctx, config, signer, n)
	case command == "sequence" && n > 0:
		for range n {
			if _, err := review(ctx, client); err != nil {
				return err
			}
		}
		fmt.Printf("%d ok, %d signatures\n", n, signer.Signatures())
		return nil
	}
	flag.Usage()
	return errors.New("unknown command")
}

// load reads the kubeconfig as every client does. A user of an external signer gets it; another
// user is left to client-go.
func load(maxVersion uint16) (*rest.Config, *externalsigner.Signer, error) {
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil || config.AuthProvider == nil {
		return config, nil, err
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, nil, err
	}
	signer, err := externalsigner.New(raw.AuthInfos[raw.Contexts[raw.CurrentContext].AuthInfo])
	if err != nil {
		return nil, nil, err
	}
	// Before any connection: nothing of it counts against the handshake's time.
	if _, err := signer.Certificate(); err != nil {
		return nil, nil, err
	}
	err = signer.Apply(config, func(tls *tls.Config) { tls.MaxVersion = maxVersion })
	return config, signer, err
}

// review asks the API server who is asking.
func review(ctx context.Context, client kubernetes.Interface) (*authentication.UserInfo, error) {
	reviews := client.AuthenticationV1().SelfSubjectReviews()
	review, err := reviews.Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &review.Status.UserInfo, nil
}

// parallel makes every request on a cold connection of its own.
func parallel(ctx context.Context, config *rest.Config, signer *externalsigner.Signer, n int) error {
	outcomes := make(chan error, n)
	// Those that requests went over, by their own ends' addresses.
	var connections sync.Map
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { connections.Store(info.Conn.LocalAddr().String(), nil) },
	})
	for range n {
		go func() {
			config := rest.CopyConfig(config)
			transport := config.Transport.(*http.Transport).Clone()
			// The clone would share the HTTP/2 connections of its original.
			transport.TLSNextProto = nil
			transport.ForceAttemptHTTP2 = true
			config.Transport = transport
			client, err := kubernetes.NewForConfig(config)
			if err == nil {
				_, err = review(ctx, client)
			}
			outcomes <- err
		}()
	}
	for range n {
		if err := <-outcomes; err != nil {
			return err
		}
	}
	used := 0
	connections.Range(func(any, any) bool { used++; return true })
	fmt.Printf("%d ok, %d signatures, %d connections\n", n, signer.Signatures(), used)
	return nil
}
