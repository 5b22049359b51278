package main

// A stand-in for a kubelet: the endpoints that the API server calls for exec, attach, port-forward
// and logs, with the kubelet's own streaming library below them. There are no containers: a command
// runs on this machine as this user, in a directory of its own, and a port is one of this machine's
// loopback. Only the API server is let in.

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/util/flushwriter"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
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
// It trusts one client certificate: none that the cluster's CA issues will do.
func startKubelet(dir string, failed chan<- error) *kubelet {
	file := func(name string) string { return filepath.Join(dir, name) }
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	k := &kubelet{port: listener.Addr().(*net.TCPAddr).Port, dir: file("container"), started: time.Now()}
	check(os.Mkdir(k.dir, 0o700))
	// The API server has seen to it that the pod and the container exist, and all of them are this machine.
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveCommand)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.serveCommand)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.servePortForward)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{
		ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs:  must(certutil.NewPool(file("kubelet-client.pem"))),
	}}
	go func() {
		err := server.ServeTLS(listener, file("kubelet.pem"), file("kubelet.key"))
		failed <- fmt.Errorf("the stand-in for a kubelet ended: %w", err)
	}()
	return k
}

// serveCommand runs a command; to attach is to have what is sent echoed.
func (k *kubelet) serveCommand(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	words := r.URL.Query()[corev1.ExecCommandParam]
	if len(words) == 0 {
		words = []string{"cat"}
	}
	remotecommand.ServeExec(w, r, k, "", "", "", words, options, streamIdleTimeout,
		remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer runs a command to its end, which the library reports: an exit code, or 128 and
// the signal's number. It leads a process group, so that its children end with it when the cluster does.
func (k *kubelet) ExecInContainer(_ context.Context, _, _, _ string, words []string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if tty {
		return errors.New("the pod has no terminals")
	}
	command := exec.Command(words[0], words[1:]...)
	command.Dir = k.dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + k.dir}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stdout, command.Stderr = out, errOut
	if in != nil {
		// Not command.Stdin: Wait would wait for its end, which may come later than the command's.
		input, err := command.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(input, in)
			input.Close()
		}()
	}
	if err := command.Start(); err != nil {
		return err
	}
	k.commands.Store(command.Process.Pid, nil)
	err := command.Wait()
	k.commands.Delete(command.Process.Pid)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if status := exit.Sys().(syscall.WaitStatus); status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return utilexec.CodeExitError{Err: err, Code: code}
}

// stop ends the commands that still run.
func (k *kubelet) stop() {
	k.commands.Range(func(group, _ any) bool {
		_ = syscall.Kill(-group.(int), syscall.SIGKILL)
		return true
	})
}

func (k *kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, k, "", "", options, streamIdleTimeout,
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

// serveLogs knows one of the kubelet's parameters, follow.
func (k *kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	out := flushwriter.Wrap(w)
	for line := 1; ; line++ {
		wait := time.Until(k.started.Add(time.Duration(line) * logInterval))
		if wait > 0 && r.FormValue("follow") != "true" {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(wait):
		}
		if _, err := fmt.Fprintf(out, "line %d\n", line); err != nil {
			return // the client has gone
		}
	}
}
