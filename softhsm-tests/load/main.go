// A load for scripts/bench-tunnel: a server that demands a client certificate, and a client that is
// told its target by a kubeconfig. Each measurement prints one number.
//
// The kubeconfig is $KUBECONFIG, in JSON as `run` writes it, with one cluster, one user and nothing
// in files. Only what tunnels need to be measured is in here: no contexts, no YAML.
package main

import (
	"fmt"
	"log"
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
       load burst N                    ms until N connections, all made at once, have had an answer each
       load plugin N                   ms a call of the kubeconfig's credential plugin, and of /bin/true
       load churn N PID                KiB and descriptors that the process PID has after 100 connections and
                                       after N, all ended
       load hold N PID                 KiB that the process PID has held at most, when N connections
                                       were idle and another in use`

func main() {
	log.SetFlags(0)
	log.SetPrefix("load: ")
	switch words := os.Args[1:]; {
	case is(words, "serve", 3):
		serve(words[1], words[2], words[3])
	case is(words, "port", 0):
		listener := must(net.Listen("tcp", "127.0.0.1:0"))
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	case is(words, "kept", 3):
		kept(words[1], words[2], must(strconv.Atoi(words[3])))
	case is(words, "fresh", 2):
		fresh(words[1], must(strconv.Atoi(words[2])))
	case is(words, "stream", 2):
		stream(words[1], must(strconv.Atoi(words[2])))
	case is(words, "burst", 1):
		burst(must(strconv.Atoi(words[1])))
	case is(words, "plugin", 1):
		plugin(must(strconv.Atoi(words[1])))
	case is(words, "churn", 2):
		churn(must(strconv.Atoi(words[1])), words[2])
	case is(words, "hold", 2):
		hold(must(strconv.Atoi(words[1])), words[2])
	default:
		log.Fatal(usage)
	}
}

func is(words []string, command string, arguments int) bool {
	return len(words) == 1+arguments && words[0] == command
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

// check ends the program with an error: no measurement goes on after one.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
