package naive

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"example.org/supervisord/internal/lab"
)

// TestQUICReachesTheGenerationOfEachConnection has HTTP/3 on connections that stay open, and on new ones, through
// reload after reload.
func TestQUICReachesTheGenerationOfEachConnection(t *testing.T) {
	path := lab.Build(t, "examples/measure/quic")
	clients, reloads := 20, 10
	if lab.Long() {
		clients, reloads = 1000, 100
	}
	m := lab.WithOwnBinary(t)
	m.Start(fmt.Sprintf(`
[program.web]
command = [%q]
stderr = "{dir}/errors"
drain.timeout = "1s"
stop.timeout = "5m"
[[program.web.listen]]
name = "quic"
address = "udp:127.0.0.1:0"
handover = "quic"
`, path))
	m.Serves(1)
	address := strings.TrimPrefix(m.Status().Programs[0].Listeners[0].Address, "udp:")
	load := exec.Command(path, "-clients", fmt.Sprint(clients), "-address", address)
	load.Stderr = os.Stderr
	says, err := load.StdoutPipe()
	lab.Must(t, err)
	until, err := load.StdinPipe()
	lab.Must(t, err)
	lab.Must(t, load.Start())
	defer load.Process.Kill()
	lines := bufio.NewScanner(says)
	for generation := 1; generation <= reloads; generation++ {
		for settled := ""; settled != fmt.Sprint("settled ", generation); settled = lines.Text() {
			if !lines.Scan() {
				t.Fatalf("the clients have ended before they reached generation %d", generation)
			}
		}
		m.Reload()
		m.Serves(generation + 1)
		m.AwaitLong(lab.Says(lab.WorkerStopped), lab.Gen(generation))
		if generation == reloads/2 {
			m.Upgrade(lab.Upgraded)
		}
	}
	lab.Must(t, until.Close())
	out := ""
	for lines.Scan() {
		out = lines.Text()
	}
	lab.Must(t, load.Wait())
	t.Logf("%d reloads: %s", reloads, out)
	var handshakes, requests, failed int
	_, err = fmt.Sscanf(out, "%d handshakes, %d requests, %d failed", &handshakes, &requests, &failed)
	lab.Must(t, err)
	if failed > 0 || handshakes < clients*reloads || requests < handshakes {
		t.Error("requests or handshakes failed, or there were too few")
	}
	if wrong := m.Read("errors"); strings.Contains(wrong, "has got a datagram of lane") {
		t.Errorf("datagrams of other generations have come:\n%.2000s", wrong)
	}
	m.Never(lab.Says(lab.WorkerKilled))
	m.Never(lab.Says(lab.WorkerDied))
}
