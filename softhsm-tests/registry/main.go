// A registry of images that lets in one user: the real one, which keeps nothing.
//
//	registry DIRECTORY USER
//
// The password is in PASSWORD. It serves plain HTTP on DIRECTORY/registry.sock until it is killed.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"golang.org/x/crypto/bcrypt"
)

const settings = `
version: 0.1
log: {level: warn}
storage: {inmemory: {}}
http: {net: unix, addr: %q}
auth: {htpasswd: {realm: registry, path: %q}}
`

func serve(directory, user string) error {
	password := []byte(os.Getenv("PASSWORD"))
	hash, err := bcrypt.GenerateFromPassword(password, bcrypt.MinCost)
	if err != nil {
		return err
	}
	users := filepath.Join(directory, "htpasswd")
	line := fmt.Sprintf("%s:%s\n", user, hash)
	if err := os.WriteFile(users, []byte(line), 0o600); err != nil {
		return err
	}
	text := fmt.Sprintf(settings, filepath.Join(directory, "registry.sock"), users)
	config, err := configuration.Parse(strings.NewReader(text))
	if err != nil {
		return err
	}
	server, err := registry.NewRegistry(context.Background(), config)
	if err != nil {
		return err
	}
	return server.ListenAndServe()
}

func main() {
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
