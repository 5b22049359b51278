package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
)

func serve(authority, certificate, key string) {
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(must(os.ReadFile(authority)))
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	fmt.Println(listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("/small", func(w http.ResponseWriter, _ *http.Request) { send(w, 1024) })
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		if err != nil || n < 0 {
			http.Error(w, "bytes= is no number", http.StatusBadRequest)
			return
		}
		send(w, n)
	})
	server := http.Server{
		Handler:   mux,
		TLSConfig: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients},
	}
	check(server.ServeTLS(listener, certificate, key))
}

var zeros [1 << 20]byte

func send(w http.ResponseWriter, n int64) {
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	for n > 0 {
		written, err := w.Write(zeros[:min(n, int64(len(zeros)))])
		if err != nil {
			return // the client has gone
		}
		n -= int64(written)
	}
}
