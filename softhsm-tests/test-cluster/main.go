// A small real cluster for the tests: etcd and kube-apiserver in one process, on loopback ports,
// with a CA of its own, and one pod to stream to and from, whose kubelet is a stand-in. It lives as
// long as the process it watches and leaves nothing behind. Approved CertificateSigningRequests for
// kubernetes.io/kube-apiserver-client are signed by kube-controller-manager's own controller.
//
//	test-cluster -dir DIR -watch PID [-ttl DURATION] [-signer SOCKET]
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
	"log"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controller/certificates/signer"
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
	signer := flag.String("signer", "", "the socket of a signer of service account tokens, in place of a key file")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("test-cluster: ")
	if *dir == "" || *watch == 0 {
		log.Fatal("usage: test-cluster -dir DIR -watch PID [-ttl DURATION] [-signer SOCKET]")
	}
	check(run(*dir, *watch, *ttl, *signer))
	check(os.RemoveAll(*dir))
	// The servers still run, and would wait for each other; they needn't end in order.
	os.Exit(0)
}

// must ends the program where a step of the start fails, and leaves the directory.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until a signal comes, the watched process ends or a server fails.
func run(dir string, watch int, ttl time.Duration, signer string) error {
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		// Signal 0 asks whether the process is there.
		for syscall.Kill(watch, 0) == nil {
			time.Sleep(200 * time.Millisecond)
		}
		end()
	}()
	etcdURL := startEtcd(filepath.Join(dir, "etcd"))
	port := freePort()
	client := writeCredentials(dir, "https://127.0.0.1:"+strconv.Itoa(port))
	write(dir, "authentication.yaml", []byte(authentication))
	failed := make(chan error, 2)
	kubelet := startKubelet(dir, failed)
	defer kubelet.stop()
	command := app.NewAPIServerCommand()
	command.SetArgs(append(apiserverFlags(dir, etcdURL, port), serviceAccountFlags(dir, signer)...))
	go func() {
		failed <- fmt.Errorf("kube-apiserver ended: %w", command.Execute())
	}()
	awaitReady(ctx, client, failed)
	createPod(ctx, client, kubelet.port)
	startSigner(ctx, client, dir, ttl)
	write(dir, "pid", []byte(strconv.Itoa(os.Getpid())))
	write(dir, "ready", nil)
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// awaitReady asks as the administrator until the server says that it is ready.
func awaitReady(ctx context.Context, client kubernetes.Interface, failed <-chan error) {
	ready := func(ctx context.Context) (bool, error) {
		select {
		case err := <-failed:
			return false, err
		default:
			return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
		}
	}
	check(wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, false, ready))
}

// startSigner runs the controller of kube-controller-manager that signs approved requests for
// kubernetes.io/kube-apiserver-client, with the cluster's CA. No certificate lives longer than ttl.
func startSigner(ctx context.Context, client kubernetes.Interface, dir string, ttl time.Duration) {
	factory := informers.NewSharedInformerFactory(client, 0)
	controller := must(signer.NewKubeAPIServerClientCSRSigningController(
		ctx, client, factory.Certificates().V1().CertificateSigningRequests(),
		filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"), ttl,
	))
	factory.Start(ctx.Done())
	go controller.Run(ctx, 1)
}

func startEtcd(dir string) string {
	config := embed.NewConfig()
	config.Dir = dir
	config.LogLevel = "error"
	config.UnsafeNoFsync = true // the data lives for minutes
	var urls [2]url.URL
	for i := range urls {
		urls[i] = url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(freePort())}
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = urls[:1], urls[:1]
	config.ListenPeerUrls, config.AdvertisePeerUrls = urls[1:], urls[1:]
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd := must(embed.StartEtcd(config))
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(time.Minute):
		log.Fatal("etcd is not ready within a minute")
	}
	return urls[0].String()
}

func apiserverFlags(dir, etcdURL string, port int) []string {
	file := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=127.0.0.1",
		// Nobody connects there; without it one of the machine's is chosen, which may have none.
		"--advertise-address=192.0.2.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + file("kube-apiserver.pem"),
		"--tls-private-key-file=" + file("kube-apiserver.key"),
		"--client-ca-file=" + file("ca.pem"),
		"--kubelet-certificate-authority=" + file("ca.pem"),
		"--kubelet-client-certificate=" + file("kubelet-client.pem"),
		"--kubelet-client-key=" + file("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--authentication-config=" + file("authentication.yaml"),
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--service-cluster-ip-range=10.0.0.0/24",
		// All that this version does by itself where no older API server is beside it: 1.38 takes requests for ML-DSA keys.
		"--min-compatibility-version=" + version.DefaultKubeBinaryVersion,
		"--service-account-issuer=https://test-cluster.invalid",
		"--disable-admission-plugins=ServiceAccount", // no controller makes the default account
		"--v=0",
	}
}

// serviceAccountFlags names who signs the tokens of service accounts: the key of the server, or a signer at this socket.
func serviceAccountFlags(dir, signer string) []string {
	if signer != "" {
		return []string{"--service-account-signing-endpoint=" + signer}
	}
	key := filepath.Join(dir, "kube-apiserver.key")
	return []string{"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key}
}

// The ports that systems choose for connections lie above: one of those could be taken before a server listens there.
const lastPort = 4999

// Clusters that start at the same time have ports of their own: four each is enough.
var nextPort = 2000 + os.Getpid()%500*4

// freePort finds a port where nobody listens, another one each time.
func freePort() int {
	for nextPort <= lastPort {
		port := nextPort
		nextPort++
		if listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			check(listener.Close())
			return port
		}
	}
	log.Fatal("no free port up to ", lastPort)
	return 0
}
