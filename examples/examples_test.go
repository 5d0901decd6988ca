// Package examples tests that the examples, with their configurations, lose no request when they are redeployed under
// load.
package examples

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }

// example starts one of the examples with its own configuration on free addresses, and returns these addresses.
func example(t *testing.T, name string, arguments ...string) (*lab.Supervisord, []string) {
	t.Helper()
	text, err := os.ReadFile(name + "/supervisord.toml")
	lab.Must(t, err)
	words := append([]string{lab.Build(t, "examples/"+name)}, arguments...)
	config := strings.Replace(string(text), `["./`+name+`"]`, `["`+strings.Join(words, `", "`)+`"]`, 1)
	var addresses []string
	for _, port := range []string{"8081", "8082", "8083", "8084", "8085", "8086"} {
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

// redeploy reloads the program five times, with a pause in which the load meets each generation.
func redeploy(m *lab.Supervisord) {
	for generation := 2; generation < 7; generation++ {
		time.Sleep(200 * time.Millisecond) // the load continues; no event to wait for
		m.Reload()
		m.Serves(generation)
	}
}

// redeployBelow redeploys while each of some clients makes one call after another, at least so many together. It fails
// if a call fails, which is the client's last one.
func redeployBelow(m *lab.Supervisord, clients, least int, call func(client int) error) {
	var all sync.WaitGroup
	var made, failed atomic.Int64
	over := make(chan struct{})
	for i := range clients {
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				made.Add(1)
				if err := call(i); err != nil {
					failed.Add(1)
					m.T.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	redeploy(m)
	m.Until("there were enough calls", func() bool { return made.Load() >= int64(least) || failed.Load() > 0 })
	close(over)
	all.Wait()
}

func TestEchoExampleLosesNoRequest(t *testing.T) {
	m, at := example(t, "echo")
	m.ReloadUnderLoad(at[0], 20, 200*time.Millisecond, 8)
}

// TestStarterExampleLosesNoNewConnection: the worker says nothing and stops with http.Server.Shutdown.
func TestStarterExampleLosesNoNewConnection(t *testing.T) {
	m, at := example(t, "starter")
	load := lab.PressNew(t, at[0], 20, 0)
	redeploy(m)
	m.Gone(5)
	load.Lossless(t)
}

func TestTCPExampleLosesNoLine(t *testing.T) {
	m, at := example(t, "tcp", "-quiet", "1s")
	redeployBelow(m, 10, 100, func(i int) error {
		conn, err := net.Dial("tcp", at[0])
		if err != nil {
			return err
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for n := range 5 {
			sent := fmt.Sprintf("client %d line %d\n", i, n)
			if _, err := io.WriteString(conn, sent); err != nil {
				return err
			}
			if got, err := in.ReadString('\n'); err != nil || got != sent {
				return fmt.Errorf("sent %q, got %q: %w", sent, got, err)
			}
		}
		return nil
	})
}

func TestQueueExampleFinishesEveryJob(t *testing.T) {
	spool := t.TempDir()
	const jobs = 30
	for n := range jobs {
		lab.Must(t, os.WriteFile(filepath.Join(spool, fmt.Sprintf("%02d.job", n)), []byte("100ms"), 0o644))
	}
	m, _ := example(t, "queue", "-spool", spool)
	redeploy(m)
	m.Until("every job is done, and none was begun and left", func() bool {
		done, _ := filepath.Glob(filepath.Join(spool, "*.done"))
		return len(done) == jobs
	})
}
