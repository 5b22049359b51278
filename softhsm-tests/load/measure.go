package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"sync"
	"time"
)

// small is an answer every target of these measurements has.
const small = "/small"

// warmUp is how many requests are made before time counts: the handshake is in the first.
const warmUp = 20

func kept(protocol, path string, n int) {
	client := readTarget().client(protocol)
	client.repeat(path, warmUp)
	begin := time.Now()
	client.repeat(path, n)
	perRequest(begin, n)
	// Seen on a busy machine only; one connection more doesn't change the mean.
	if err := client.close(); err != nil {
		log.Print(err)
	}
}

func perRequest(begin time.Time, n int) {
	fmt.Printf("%.1f\n", float64(time.Since(begin).Nanoseconds())/1000/float64(n))
}

func fresh(path string, n int) {
	target := readTarget()
	var begin time.Time
	for i := range n + 1 {
		// The first finds out what later ones can resume, on the other side of a tunnel.
		if i == 1 {
			begin = time.Now()
		}
		client := target.client("http/1.1")
		client.get(path)
		check(client.close())
	}
	perRequest(begin, n)
}

func stream(protocol string, mib int) {
	client := readTarget().client(protocol)
	client.repeat(small, warmUp)
	wanted := int64(mib) << 20
	begin := time.Now()
	received := client.get(fmt.Sprintf("/stream?bytes=%d", wanted))
	seconds := time.Since(begin).Seconds()
	if received != wanted {
		log.Fatalf("%d bytes arrived of %d", received, wanted)
	}
	fmt.Printf("%.1f\n", float64(mib)/seconds)
	check(client.close())
}

// atOnce is how many connections are made at the same time.
const atOnce = 50

func hold(n int, pid string) {
	target := readTarget()
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = target.client("http/1.1")
	}
	all(clients)
	used := target.client("http/1.1")
	used.repeat(small, 200)
	peak := peakMemory(pid)
	// They were there all the time.
	all(clients)
	for _, client := range append(clients, used) {
		check(client.close())
	}
	fmt.Println(peak)
}

// all makes one request with each client.
func all(clients []*client) {
	places := make(chan struct{}, atOnce)
	var requests sync.WaitGroup
	for _, client := range clients {
		places <- struct{}{}
		requests.Go(func() {
			client.get(small)
			<-places
		})
	}
	requests.Wait()
}

// peakMemory is the most that a process has had in memory so far, in KiB. It is to be read of
// another process of the same user even if that can't be traced or dumped.
func peakMemory(pid string) (kibibytes int) {
	for line := range bytes.Lines(must(os.ReadFile("/proc/" + pid + "/status"))) {
		if _, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &kibibytes); err == nil {
			return kibibytes
		}
	}
	log.Fatalf("process %s has no VmHWM", pid)
	return 0
}
