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

// burst makes N connections at once, as client-go does with min-connection-pool-size.
func burst(n int) {
	target := readTarget()
	begin := time.Now()
	var requests sync.WaitGroup
	for range n {
		requests.Go(func() {
			client := target.client("http/1.1")
			client.get(small)
			check(client.close())
		})
	}
	requests.Wait()
	fmt.Println(time.Since(begin).Milliseconds())
}

// churn makes N connections, a few at a time, and ends each after a request.
func churn(n int, pid string) {
	target := readTarget()
	connections := func(n int) {
		places := make(chan struct{}, atOnce)
		var requests sync.WaitGroup
		for range n {
			places <- struct{}{}
			requests.Go(func() {
				client := target.client("http/1.1")
				client.get(small)
				check(client.close())
				<-places
			})
		}
		requests.Wait()
	}
	// Sooner or later each ends on the other side, too.
	settled := func() string {
		var last string
		for range 100 {
			held := fmt.Sprintf("%d %d", status(pid, "VmRSS"), descriptors(pid))
			if held == last {
				break
			}
			last = held
			time.Sleep(200 * time.Millisecond)
		}
		return last
	}
	connections(warm)
	before := settled()
	connections(n - warm)
	fmt.Println(before, settled())
}

// warm is how many connections are made before a process has what it keeps: buffers, threads, TLS sessions.
const warm = 100

// descriptors is how many a process has open.
func descriptors(pid string) int {
	return len(must(os.ReadDir("/proc/" + pid + "/fd")))
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

// peakMemory is the most that a process has had in memory so far, in KiB.
func peakMemory(pid string) int {
	return status(pid, "VmHWM")
}

// status is a size that the kernel tells of a process, in KiB. It is to be read of another process
// of the same user even if that can't be traced or dumped.
func status(pid, name string) (kibibytes int) {
	for line := range bytes.Lines(must(os.ReadFile("/proc/" + pid + "/status"))) {
		if _, err := fmt.Sscanf(string(line), name+": %d kB", &kibibytes); err == nil {
			return kibibytes
		}
	}
	log.Fatalf("process %s has no %s", pid, name)
	return 0
}
