// A small Kubernetes client on client-go that uses the proposal's kubeconfig as it stands: the
// other half of pkcs11-external-signer, for its tests and for reading.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"pkcs11-external-signer/client-go/externalsigner"
)

const usage = `usage: client-go [--kubeconfig FILE] [--context NAME] [--tls-max 1.2|1.3] [-n NAMESPACE] COMMAND
  whoami                     as whom the API server knows us
  get RESOURCE               the names of all there are
  get --raw PATH             what a server answers
  apply -f FILE|-            create or change what YAML or JSON documents describe
  delete RESOURCE NAME
  watch RESOURCE EVENTS      until so many events have come
  parallel N                 N requests at once, each on a connection of its own
  sequence N                 N requests, one after the other
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "client-go:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	flags := flag.NewFlagSet("client-go", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	kubeconfig := flags.String("kubeconfig", "", "")
	contextName := flags.String("context", "", "")
	tlsMax := flags.String("tls-max", "1.3", "")
	namespace := flags.String("n", "default", "")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	maxVersion, known := map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[*tlsMax]
	if !known {
		return fmt.Errorf("unknown TLS version %s", *tlsMax)
	}
	config, signer, err := load(*kubeconfig, *contextName, maxVersion)
	if err != nil {
		return err
	}
	client := &client{config: config, signer: signer, namespace: *namespace}
	ctx := context.Background()
	switch words := flags.Args(); {
	case is(words, "whoami", 0):
		return client.whoami(ctx)
	case is(words, "get", 2) && words[1] == "--raw":
		return client.page(ctx, words[2])
	case is(words, "get", 1):
		return client.get(ctx, words[1])
	case is(words, "apply", 2) && words[1] == "-f":
		return client.apply(ctx, words[2])
	case is(words, "delete", 2):
		return client.delete(ctx, words[1], words[2])
	case is(words, "watch", 2):
		return counted(words[2], func(n int) error { return client.watch(ctx, words[1], n) })
	case is(words, "parallel", 1):
		return counted(words[1], func(n int) error { return client.parallel(ctx, n) })
	case is(words, "sequence", 1):
		return counted(words[1], func(n int) error { return client.sequence(ctx, n) })
	}
	flags.Usage()
	return errors.New("unknown command")
}

func is(words []string, command string, arguments int) bool {
	return len(words) == 1+arguments && words[0] == command
}

func counted(number string, do func(int) error) error {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no number of times", number)
	}
	return do(n)
}

// load reads the kubeconfig as every client does. A user of an external signer gets it; another
// user is left to client-go.
func load(kubeconfig, contextName string, maxVersion uint16) (*rest.Config, *externalsigner.Signer, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: contextName}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil || config.AuthProvider == nil {
		return config, nil, err
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, nil, err
	}
	if contextName == "" {
		contextName = raw.CurrentContext
	}
	signer, err := externalsigner.New(raw.AuthInfos[raw.Contexts[contextName].AuthInfo])
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
