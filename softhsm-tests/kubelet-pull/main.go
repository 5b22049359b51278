// Looks up registry logins as kubelet does before it pulls an image: kubelet's own package runs the provider.
//
//	pull CONFIG BIN-DIR IMAGE...
//
// All images are looked up at once; then each once more, which the package may answer from what it keeps. Prints a
// line of JSON for each look-up. What kubelet would log, at its highest level, goes to standard error.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/credentialprovider/plugin"
)

type login struct {
	Image    string   `json:"image"`
	Found    bool     `json:"found"`
	Users    []string `json:"users"`
	Password string   `json:"password"`
}

func main() {
	options := flag.NewFlagSet("klog", flag.ExitOnError)
	klog.InitFlags(options)
	options.Set("v", "10")
	config, binDir, images := os.Args[1], os.Args[2], os.Args[3:]
	if err := plugin.RegisterCredentialProviderPlugins(config, binDir, nil, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	found := make([]login, 2*len(images))
	var lookups sync.WaitGroup
	for number, image := range images {
		lookups.Go(func() { found[number] = lookUp(image) })
	}
	lookups.Wait()
	for number, image := range images {
		found[len(images)+number] = lookUp(image)
	}
	for _, login := range found {
		json.NewEncoder(os.Stdout).Encode(login)
	}
	klog.Flush()
}

func lookUp(image string) login {
	keyring := plugin.NewExternalCredentialProviderDockerKeyring("default", "pod", "uid", "default")
	logins, ok := keyring.Lookup(image)
	answer := login{Image: image, Found: ok, Users: []string{}}
	for _, one := range logins {
		answer.Users = append(answer.Users, one.Username)
		answer.Password = one.Password
	}
	return answer
}
