package main

// A stand-in for a kubelet: the endpoints that the API server calls for exec, attach, port-forward
// and logs, with the kubelet's own streaming library below them. There are no containers: a command
// runs on this machine as this user, in a directory of its own, and a port is one of this machine's
// loopback. Only the API server is let in.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/util/flushwriter"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// The container prints a line each time this has passed.
const logInterval = 100 * time.Millisecond

// As the kubelet has it.
const streamIdleTimeout = 4 * time.Hour

type kubelet struct {
	port     int
	dir      string // the commands' working directory
	started  time.Time
	commands sync.Map // the process groups that run, their numbers as keys
}

// startKubelet serves on a port of the system's choice; its end, which is a failure, goes to the channel.
func startKubelet(dir string, failed chan<- error) (*kubelet, error) {
	tlsConfig, err := kubeletTLS(dir)
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, "container")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &kubelet{port: listener.Addr().(*net.TCPAddr).Port, dir: home, started: time.Now()}
	server := &http.Server{Handler: k.handler(), TLSConfig: tlsConfig}
	go func() {
		failed <- fmt.Errorf("the stand-in for a kubelet ended: %w", server.ServeTLS(listener, "", ""))
	}()
	return k, nil
}

// kubeletTLS trusts one client certificate: none that the cluster's CA issues will do.
func kubeletTLS(dir string) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "kubelet.pem"), filepath.Join(dir, "kubelet.key"))
	if err != nil {
		return nil, err
	}
	client, err := os.ReadFile(filepath.Join(dir, "kubelet-client.pem"))
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(client)
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
	}, nil
}

// handler has the kubelet's paths. The API server has seen to it that the pod and the container
// exist, and all of them are this machine.
func (k *kubelet) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.serveAttach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	return mux
}

func (k *kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, k, r.PathValue("pod"), "", r.PathValue("container"),
		r.URL.Query()[corev1.ExecCommandParam], options, streamIdleTimeout,
		remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *kubelet) serveAttach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), options,
		streamIdleTimeout, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// AttachContainer echoes what it is sent; who sends nothing sees what the container prints from now on.
func (k *kubelet) AttachContainer(ctx context.Context, pod, uid, container string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	if in == nil {
		return k.writeLog(ctx, out, k.printed()+1, true)
	}
	return k.ExecInContainer(ctx, pod, uid, container, []string{"cat"}, in, out, errOut, tty, resize, 0)
}

func (k *kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, k, r.PathValue("pod"), "", options, streamIdleTimeout,
		remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}

// PortForward ends when the port's side has said all it has to say; the stream's side may end before.
func (k *kubelet) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		if _, err := io.Copy(conn, stream); err != nil {
			conn.Close()
			return
		}
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	if _, err := io.Copy(stream, conn); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// serveLogs knows two of the kubelet's parameters, follow and tailLines.
func (k *kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	first := 1
	if tail, err := strconv.Atoi(r.FormValue("tailLines")); err == nil {
		first = max(first, k.printed()+1-tail)
	}
	// An error is a client that has gone.
	_ = k.writeLog(r.Context(), flushwriter.Wrap(w), first, r.FormValue("follow") == "true")
}

// printed is the number of lines in the container's log.
func (k *kubelet) printed() int { return int(time.Since(k.started) / logInterval) }

// writeLog writes the log from a line on (the first is 1); who follows it gets the coming ones, too.
func (k *kubelet) writeLog(ctx context.Context, out io.Writer, line int, follow bool) error {
	for ; ; line++ {
		if wait := time.Until(k.started.Add(time.Duration(line) * logInterval)); wait > 0 {
			if !follow {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
		}
		if _, err := fmt.Fprintf(out, "line %d\n", line); err != nil {
			return err
		}
	}
}
