package main

import (
	"bytes"
	"fmt"
	"os"
	"time"
)

// small is an answer every target of these measurements has.
const small = "/small"

// warmUp is how many requests are made before time counts: the handshake is in the first.
const warmUp = 20

func kept(protocol, path string, n int) error {
	target, err := readTarget()
	if err != nil {
		return err
	}
	client := target.client(protocol)
	if err := repeat(client, path, warmUp); err != nil {
		return err
	}
	begin := time.Now()
	if err := repeat(client, path, n); err != nil {
		return err
	}
	perRequest(begin, n)
	// Seen on a busy machine only; one connection more doesn't change the mean.
	if err := client.close(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
	}
	return nil
}

func repeat(client *client, path string, n int) error {
	for range n {
		if _, err := client.get(path); err != nil {
			return err
		}
	}
	return nil
}

func perRequest(begin time.Time, n int) {
	fmt.Printf("%.1f\n", float64(time.Since(begin).Nanoseconds())/1000/float64(n))
}

func fresh(path string, n int) error {
	target, err := readTarget()
	if err != nil {
		return err
	}
	var begin time.Time
	for i := range n + 1 {
		// The first finds out what later ones can resume, on the other side of a tunnel.
		if i == 1 {
			begin = time.Now()
		}
		client := target.client("http/1.1")
		if _, err := client.get(path); err != nil {
			return err
		}
		if err := client.close(); err != nil {
			return err
		}
	}
	perRequest(begin, n)
	return nil
}

func stream(protocol string, mib int) error {
	target, err := readTarget()
	if err != nil {
		return err
	}
	client := target.client(protocol)
	if err := repeat(client, small, warmUp); err != nil {
		return err
	}
	wanted := int64(mib) << 20
	begin := time.Now()
	received, err := client.get(fmt.Sprintf("/stream?bytes=%d", wanted))
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	if received != wanted {
		return fmt.Errorf("%d bytes arrived of %d", received, wanted)
	}
	fmt.Printf("%.1f\n", float64(mib)/seconds)
	return client.close()
}

// atOnce is how many connections are made at the same time.
const atOnce = 50

func hold(n int, pid string) error {
	target, err := readTarget()
	if err != nil {
		return err
	}
	clients := make([]*client, n)
	for i := range clients {
		clients[i] = target.client("http/1.1")
	}
	if err := all(clients); err != nil {
		return err
	}
	used := target.client("http/1.1")
	if err := repeat(used, small, 200); err != nil {
		return err
	}
	peak, err := peakMemory(pid)
	if err != nil {
		return err
	}
	// They were there all the time.
	if err := all(clients); err != nil {
		return err
	}
	for _, client := range append(clients, used) {
		if err := client.close(); err != nil {
			return err
		}
	}
	fmt.Println(peak)
	return nil
}

// all makes one request with each client.
func all(clients []*client) error {
	places := make(chan struct{}, atOnce)
	failures := make(chan error, len(clients))
	for _, client := range clients {
		places <- struct{}{}
		go func() {
			_, err := client.get(small)
			<-places
			failures <- err
		}()
	}
	for range clients {
		if err := <-failures; err != nil {
			return err
		}
	}
	return nil
}

// peakMemory is the most that a process has had in memory so far, in KiB. It is to be read of
// another process of the same user even if that can't be traced or dumped.
func peakMemory(pid string) (int, error) {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		var kibibytes int
		if _, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &kibibytes); err == nil {
			return kibibytes, nil
		}
	}
	return 0, fmt.Errorf("process %s has no VmHWM", pid)
}
