package main

import (
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// attack attacks the control socket for a time, as an ordinary user: with garbage, half requests, many connections,
// readers that do not read, requests that are not permitted. It does not look at answers: supervisord has to serve
// everybody else meanwhile.
func attack(seed uint64, length time.Duration) {
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			for time.Now().Before(end) {
				assail(r, end)
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// assail makes one attack.
func assail(r *rand.Rand, end time.Time) {
	connections, say := 1, ""
	switch r.IntN(8) {
	case 0:
		garbage := make([]byte, 1+r.IntN(64<<10))
		for i := range garbage {
			garbage[i] = byte(r.Uint32())
		}
		say = string(garbage)
	case 1:
		say = "POST /v1/reload HTTP/1.1\r\nHost: supervisord\r\nContent-Length: 100\r\n\r\n{\"hold\": tr"
	case 2:
		say = "GET /v1/status HTTP/1.1\r\nHost:"
	case 3:
		say = "GET /v1/events HTTP/1.1\r\nHost: supervisord\r\n\r\n" // and does not read
	case 4:
		connections = 40 // of each of the eight: more than supervisord allows
	case 5:
		say = "POST /v1/programs/naive/stop HTTP/1.1\r\nHost: supervisord\r\nContent-Length: 0\r\n\r\n"
	case 6:
		say = strings.Repeat("GET /v1/status HTTP/1.1\r\nHost: supervisord\r\n\r\n", 50) // and does not read
	case 7:
		say = "POST /v1/upgrade HTTP/1.1\r\nHost: supervisord\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n"
	}
	hold := min(time.Until(end), time.Duration(r.IntN(500))*time.Millisecond)
	for range connections {
		c, err := net.Dial("unix", filepath.Join(runtime, "control.sock"))
		if err != nil {
			continue
		}
		defer c.Close()                                 //nolint:errcheck // nobody waits for it
		c.SetWriteDeadline(time.Now().Add(time.Second)) //nolint:errcheck // a unix socket has deadlines
		c.Write([]byte(say))                            //nolint:errcheck // it may be cut off
	}
	time.Sleep(hold)
}
