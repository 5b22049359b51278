package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// protocols are the ALPN names, and the major version that a response then has.
var protocols = map[string]int{"http/1.1": 1, "h2": 2}

// target is what the kubeconfig's only cluster and user say; over plain HTTP without a user.
type target struct {
	server string
	tls    *tls.Config
}

func readTarget() *target {
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server        string `json:"server"`
				TLSServerName string `json:"tls-server-name"`
				Authority     []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			} `json:"user"`
		} `json:"users"`
	}
	check(json.Unmarshal(must(os.ReadFile(os.Getenv("KUBECONFIG"))), &config))
	cluster, user := config.Clusters[0].Cluster, config.Users[0].User
	settings := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: cluster.TLSServerName}
	settings.RootCAs.AppendCertsFromPEM(cluster.Authority)
	if len(user.Certificate) > 0 {
		settings.Certificates = []tls.Certificate{must(tls.X509KeyPair(user.Certificate, user.Key))}
	}
	return &target{cluster.Server, settings}
}

// client has connections of its own, and resumes no other's TLS session.
type client struct {
	target   *target
	protocol string
	http     http.Client
	dialled  atomic.Int32
}

func (t *target) client(protocol string) *client {
	c := &client{target: t, protocol: protocol}
	dialer := net.Dialer{}
	transport := &http.Transport{
		TLSClientConfig: t.tls.Clone(),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c.dialled.Add(1)
			return dialer.DialContext(ctx, network, address)
		},
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(protocol == "http/1.1")
	transport.Protocols.SetHTTP2(protocol == "h2")
	c.http.Transport = transport
	return c
}

// get reads the whole answer; how long it is.
func (c *client) get(path string) int64 {
	response := must(c.http.Get(c.target.server + path))
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ProtoMajor != protocols[c.protocol] {
		log.Fatalf("the answer is %s over %s, not %s", response.Status, response.Proto, c.protocol)
	}
	return must(io.Copy(io.Discard, response.Body))
}

func (c *client) repeat(path string, n int) {
	for range n {
		c.get(path)
	}
}

// close closes the connection; an error if it was not the only one.
func (c *client) close() error {
	c.http.CloseIdleConnections()
	if n := c.dialled.Load(); n != 1 {
		return fmt.Errorf("%d connections were made, where it should have been one", n)
	}
	return nil
}
