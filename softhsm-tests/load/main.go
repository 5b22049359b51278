// A load for scripts/bench-tunnel: a server that demands a client certificate, and a client that is
// told its target by a kubeconfig. Each measurement prints one number.
//
// The kubeconfig is $KUBECONFIG, in JSON as `run` writes it, with one cluster, one user and nothing
// in files. Only what tunnels need to be measured is in here: no contexts, no YAML.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
)

const usage = `usage: load serve CA CERTIFICATE KEY   prints its address and serves for ever:
                                       /small is 1 KiB, /stream?bytes=N is N bytes
       load port                       prints a port of 127.0.0.1 that is free
       load kept PROTOCOL PATH N       µs a request, all on one connection; http/1.1 or h2
       load fresh PATH N               µs a request, each on a connection of its own
       load stream PROTOCOL MIB        MiB/s of one response
       load hold N PID                 KiB that the process PID has held at most, when N connections
                                       were idle and another in use`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	switch {
	case is(words, "serve", 3):
		return serve(words[1], words[2], words[3])
	case is(words, "port", 0):
		return port()
	case is(words, "kept", 3) && protocols[words[1]] != 0:
		return counted(words[3], func(n int) error { return kept(words[1], words[2], n) })
	case is(words, "fresh", 2):
		return counted(words[2], func(n int) error { return fresh(words[1], n) })
	case is(words, "stream", 2) && protocols[words[1]] != 0:
		return counted(words[2], func(n int) error { return stream(words[1], n) })
	case is(words, "hold", 2):
		return counted(words[1], func(n int) error { return hold(n, words[2]) })
	}
	return errors.New(usage)
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

func port() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	return listener.Close()
}
