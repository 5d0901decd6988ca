package tests

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.org/supervisord/examples/grpc/greeter"

	"example.org/supervisord/internal/lab"
)

// example starts one of the examples with its own configuration, on addresses that are free, and returns these.
func example(t *testing.T, name string, arguments ...string) (*lab.Supervisord, []string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	command := exec.Command("go", "build", "-o", binary, "./examples/"+name)
	command.Dir = ".."
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("../examples/" + name + "/supervisord.toml")
	lab.Must(t, err)
	words := append([]string{binary}, arguments...)
	config := strings.Replace(string(text), `["./`+name+`"]`, `["`+strings.Join(words, `", "`)+`"]`, 1)
	var addresses []string
	for _, port := range []string{"8081", "8082", "8083", "8084", "8085"} {
		if strings.Contains(config, "127.0.0.1:"+port) {
			at := lab.Reserve(t)
			config = strings.ReplaceAll(config, "127.0.0.1:"+port, at)
			addresses = append(addresses, at)
		}
	}
	m := lab.Prepare(t)
	m.Start(config)
	m.Serves(1)
	return m, addresses
}

// redeploys reloads several times, with a pause in which the load meets each generation.
func redeploys(m *lab.Supervisord) {
	for generation := 2; generation < 7; generation++ {
		time.Sleep(200 * time.Millisecond) // the load goes on; there is no event to wait for
		m.Reload()
		m.Serves(generation)
	}
}

func TestTheEchoExampleLosesNothing(t *testing.T) {
	m, at := example(t, "echo")
	m.ReloadUnderLoad(at[0], 20, 200*time.Millisecond, 8)
}

// calling makes calls from several clients until the function that it returns is called, which reports those that failed.
func calling(t *testing.T, clients int, call func(client int) error) (stop func()) {
	done := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	calls := 0
	for i := range clients {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				err := call(i)
				mu.Lock()
				calls++
				if err != nil {
					failed = append(failed, err)
				}
				mu.Unlock()
			}
		})
	}
	return func() {
		t.Helper()
		close(done)
		all.Wait()
		if len(failed) > 0 || calls < 10*clients {
			t.Errorf("%d of %d calls failed: %v", len(failed), calls, errors.Join(failed[:min(3, len(failed))]...))
		}
	}
}

func TestTheGRPCExamplesLoseNoCall(t *testing.T) {
	for _, name := range []string{"grpc", "json-vs-grpc"} {
		m, at := example(t, name)
		conns := make([]greeter.GreeterClient, 10)
		for i := range conns {
			c, err := grpc.NewClient(at[len(at)-1], grpc.WithTransportCredentials(insecure.NewCredentials()))
			lab.Must(t, err)
			defer c.Close()
			conns[i] = greeter.NewGreeterClient(c)
		}
		stop := calling(t, len(conns), func(i int) error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_, err := conns[i].Hello(ctx, &greeter.HelloRequest{Name: "you"})
			return err
		})
		redeploys(m)
		stop()
	}
}

func TestTheTCPExampleLosesNoLine(t *testing.T) {
	m, at := example(t, "tcp", "-quiet", "1s")
	stop := calling(t, 10, func(i int) error {
		c, err := net.Dial("tcp", at[0])
		if err != nil {
			return err
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for n := range 5 {
			said := fmt.Sprintf("client %d line %d\n", i, n)
			if _, err := io.WriteString(c, said); err != nil {
				return err
			}
			if got, err := in.ReadString('\n'); err != nil || got != said {
				return fmt.Errorf("sent %q, got %q: %w", said, got, err)
			}
		}
		return nil
	})
	redeploys(m)
	stop()
}

func TestTheQueueExampleFinishesEveryJob(t *testing.T) {
	spool := t.TempDir()
	const jobs = 30
	for n := range jobs {
		lab.Must(t, os.WriteFile(filepath.Join(spool, fmt.Sprintf("%02d.job", n)), []byte("100ms"), 0o644))
	}
	m, _ := example(t, "queue", "-spool", spool)
	redeploys(m)
	m.Until("every job is done, and none was begun and left", func() bool {
		done, _ := filepath.Glob(filepath.Join(spool, "*.done"))
		return len(done) == jobs
	})
}
