package tests

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// askAll connects so many clients that send a request, and returns what becomes of each: "answered", "reset" or an
// error.
func askAll(t *testing.T, address string, n int) <-chan string {
	t.Helper()
	ends := make(chan string, n)
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n")
		go func() {
			defer c.Close()
			c.SetDeadline(time.Now().Add(lab.AnswerTimeout))
			answer, err := io.ReadAll(c)
			switch {
			case strings.HasPrefix(string(answer), "HTTP/1.0 200"), strings.HasPrefix(string(answer), "HTTP/1.1 200"):
				ends <- "answered"
			case errors.Is(err, syscall.ECONNRESET):
				ends <- "reset"
			default:
				ends <- fmt.Sprintf("%q, %v", answer, err)
			}
		}()
	}
	return ends
}

// ended counts what became of n clients.
func ended(ends <-chan string, n int) map[string]int {
	all := map[string]int{}
	for range n {
		all[<-ends]++
	}
	return all
}

// TestClientsOfACanaryThatDiesAreReset has a canary that hangs, and then dies, with clients in its queue.
func TestClientsOfACanaryThatDiesAreReset(t *testing.T) {
	for _, share := range []string{"50%", "90%"} {
		t.Run(share, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, lab.Web)
			m.Serves(1)
			m.CtlOK("reload", "--canary", share, "--hold")
			canary := m.WorkerPID(2)
			syscall.Kill(canary, syscall.SIGSTOP)
			ends := askAll(t, m.Address(), 20)
			syscall.Kill(canary, syscall.SIGKILL)
			if all := ended(ends, 20); all["answered"]+all["reset"] != 20 || all["reset"] == 0 {
				t.Errorf("of 20 clients: %v", all)
			}
			m.Finish()
		})
	}
}

// TestTrialDoesNotAnswerAClientOfAnEarlierGeneration has a client that connects to the first generation, and asks when
// that is gone and the third is a canary.
func TestTrialDoesNotAnswerAClientOfAnEarlierGeneration(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, strings.Replace(lab.Web, `"127.0.0.1:0"`, `"`+address+"\"\nsocket.defer_accept = \"30s\"", 1)+
				"[program.web.drain]\nsilence = \"0s\"\n")
			m.Serves(1)
			c, err := net.Dial("tcp", m.Address())
			lab.Must(t, err)
			defer c.Close()
			m.CtlOK("reload", "--drained")
			m.CtlOK("reload", "--canary", "50%", "--hold")
			_, reset := fmt.Fprintf(c, "GET / HTTP/1.0\r\n\r\n") // the kernel says it once
			lab.Must(t, c.SetDeadline(time.Now().Add(lab.AnswerTimeout)))
			answer, err := io.ReadAll(c)
			if len(answer) > 0 || !errors.Is(errors.Join(reset, err), syscall.ECONNRESET) {
				t.Errorf("the client is answered %q, %v", answer, errors.Join(reset, err))
			}
			m.Finish()
		})
	}
}
