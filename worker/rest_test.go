package worker

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/worker/life"
)

var chains = flag.Int("chains", 25, "how often four chains of wrappers are stopped")

// The shells of a chain end one after the other while the Launcher looks at what is left of the worker, so the server
// at the end of the chain has another parent from one moment to the next.
func TestServerOutlivesAChainOfWrappersThatEndsDuringTheLook(t *testing.T) {
	l := launcher(t)
	var lost []error
	for range *chains {
		var all []*chain
		for range 4 {
			all = append(all, newChain(t, l))
		}
		for _, c := range all {
			must.Do(t, c.w.Stop(syscall.SIGTERM, true))
		}
		for _, c := range all {
			if err := c.ends(); err != nil {
				lost = append(lost, err)
			}
		}
	}
	if len(lost) > 0 {
		t.Errorf("%d of %d servers were lost: %v", len(lost), 4**chains, errors.Join(lost...))
	}
}

// chain is a worker of twelve shells, each the parent of the next, with a server at its end. TERM ends every shell. The
// server ignores TERM and answers when its request ends.
type chain struct {
	*subject
	says    *bufio.Reader
	request *os.File
	server  int
}

func newChain(t *testing.T, l *Launcher) *chain {
	t.Helper()
	said, saidEnd := pipe(t)
	read, write := pipe(t)
	var words []string
	for range 12 {
		words = append(words, "/bin/sh", "-c", `"$@"; true`, "sh")
	}
	spec := command(append(words, "/bin/sh", "-c", `trap "" TERM; echo $$ >&3; read x <&4; echo answered >&3`)...)
	spec.Sockets = []int{int(saidEnd.Fd()), int(read.Fd())}
	c := &chain{subject: started(t, l, spec), says: bufio.NewReader(said), request: write}
	saidEnd.Close()
	read.Close()
	if _, err := fmt.Fscanln(c.says, &c.server); err != nil {
		t.Fatalf("the server does not begin: %v", err)
	}
	return c
}

// ends waits until only the server is left, lets it answer and waits for the end of the worker. The error says that the
// worker ended before.
func (c *chain) ends() error {
	for left := ""; left != fmt.Sprintf("sh (PID %d)", c.server); {
		switch e := c.next().(type) {
		case life.Outlived:
			left = e.Left
		case life.Exited:
			return fmt.Errorf("%s before its server, when this was left: %q", e, left)
		}
	}
	c.request.Close()
	line, err := c.says.ReadString('\n')
	for !c.ended { // the server may change its name before it ends
		c.next()
	}
	if line != "answered\n" {
		return fmt.Errorf("the server says %q: %w", line, err)
	}
	return nil
}
