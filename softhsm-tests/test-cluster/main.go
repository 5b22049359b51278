// A small real cluster for the tests: etcd and kube-apiserver in one process, on loopback ports,
// with a CA of its own, and one pod to stream to and from, whose kubelet is a stand-in. It lives as
// long as the process it watches and leaves nothing behind. Approved CertificateSigningRequests for
// kubernetes.io/kube-apiserver-client are signed by kube-controller-manager's own controller.
//
//	test-cluster -dir DIR -watch PID [-ttl DURATION]
//
// DIR is removed at the end, unless the start failed. When the API server is ready, DIR holds ca.pem
// and ca.key (which issue client certificates), admin.kubeconfig (an ordinary key file, group
// system:masters), authentication.yaml (--authentication-config, which is read again when it changes),
// pid and, last of all, an empty file named ready. Certificates that are issued live for -ttl at most.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// No issuer of tokens is trusted at first.
const authentication = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt: []
`

func main() {
	dir := flag.String("dir", "", "the directory to make and to remove at the end")
	watch := flag.Int("watch", 0, "the process whose end is ours")
	ttl := flag.Duration("ttl", 365*24*time.Hour, "how long a certificate that is issued lives at most")
	flag.Parse()
	if *dir == "" || *watch == 0 {
		fmt.Fprintln(os.Stderr, "usage: test-cluster -dir DIR -watch PID [-ttl DURATION]")
		os.Exit(2)
	}
	if err := run(*dir, *watch, *ttl); err != nil {
		fmt.Fprintln(os.Stderr, "test-cluster:", err)
		os.Exit(1)
	}
	if err := os.RemoveAll(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "test-cluster:", err)
		os.Exit(1)
	}
	// The servers still run, and would wait for each other; they needn't end in order.
	os.Exit(0)
}

// run serves until a signal comes, the watched process ends or a server fails.
func run(dir string, watch int, ttl time.Duration) error {
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		// Signal 0 asks whether the process is there.
		for syscall.Kill(watch, 0) == nil {
			time.Sleep(200 * time.Millisecond)
		}
		end()
	}()

	etcdURL, err := startEtcd(filepath.Join(dir, "etcd"))
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}

	port, err := freePort()
	if err != nil {
		return err
	}
	server := "https://127.0.0.1:" + strconv.Itoa(port)
	if err := writeCredentials(dir, server); err != nil {
		return err
	}
	failed := make(chan error, 2)
	if err := os.WriteFile(filepath.Join(dir, "authentication.yaml"), []byte(authentication), 0o600); err != nil {
		return err
	}
	kubelet, err := startKubelet(dir, failed)
	if err != nil {
		return fmt.Errorf("kubelet: %w", err)
	}
	defer kubelet.stop()
	command := app.NewAPIServerCommand()
	command.SetArgs(apiserverFlags(dir, etcdURL, port))
	go func() {
		failed <- fmt.Errorf("kube-apiserver ended: %w", command.Execute())
	}()
	if err := awaitReady(ctx, dir, server, failed); err != nil {
		return err
	}
	if err := createPod(ctx, dir, kubelet.port); err != nil {
		return fmt.Errorf("the pod: %w", err)
	}
	if err := startSigner(ctx, dir, ttl); err != nil {
		return fmt.Errorf("the signer: %w", err)
	}
	pid := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(pid), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func startEtcd(dir string) (string, error) {
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "error"
	config.UnsafeNoFsync = true // the data lives for minutes
	var urls [2]url.URL
	for i := range urls {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		urls[i] = url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(port)}
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = urls[:1], urls[:1]
	config.ListenPeerUrls, config.AdvertisePeerUrls = urls[1:], urls[1:]
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return "", err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return urls[0].String(), nil
	case <-time.After(time.Minute):
		return "", fmt.Errorf("not ready within a minute")
	}
}

func apiserverFlags(dir, etcdURL string, port int) []string {
	file := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		// Nobody connects there; without it one of the machine's is chosen, which may have none.
		"--advertise-address=192.0.2.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + file("server.pem"),
		"--tls-private-key-file=" + file("server.key"),
		"--client-ca-file=" + file("ca.pem"),
		"--kubelet-certificate-authority=" + file("ca.pem"),
		"--kubelet-client-certificate=" + file("kubelet-client.pem"),
		"--kubelet-client-key=" + file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--authentication-config=" + file("authentication.yaml"),
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://test-cluster.invalid",
		"--service-account-key-file=" + file("server.key"),
		"--service-account-signing-key-file=" + file("server.key"),
		"--disable-admission-plugins=ServiceAccount", // no controller makes the default account
		"--v=0",
	}
}

// The ports that systems choose for connections lie above: one of those could be taken before a server listens there.
const lastPort = 4999

var nextPort = 2000 + rand.IntN(2000)

// freePort finds a port where nobody listens, another one each time.
func freePort() (int, error) {
	for nextPort <= lastPort {
		port := nextPort
		nextPort++
		if listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free port up to %d", lastPort)
}
