package naive

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

// datagrams is a storm of datagrams, each from a port of its own, with a reload every 100 ms.
func datagrams(address string) lab.Storm {
	return lab.Storm{
		Clients: lab.Clients{Count: 50, Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", address)
		}, Ask: load.Echo},
		Requests: 1_000_000, Every: 100 * time.Millisecond, Reloads: 20,
	}
}

// echo is a program whose worker sends datagrams back, and dies of TERM. binds is the address that it opens itself; "":
// it takes the one that it inherits.
func echo(t *testing.T, binds string) string {
	t.Helper()
	words, listener := []string{lab.Build(t, "examples/measure/naive"), "-udp"}, ""
	if binds != "" {
		words, listener = append(words, "-address="+binds), fmt.Sprintf("binds = %q\n", "udp:"+binds)
	}
	return lab.WithHandover(fmt.Sprintf(`
[program.web]
command = ["%s"]
[[program.web.listen]]
name = "echo"
address = "udp:127.0.0.1:0"
%s`, strings.Join(words, `", "`), listener))
}

func TestEchoOfDatagramsLosesNoneWithAHUPEvery100Milliseconds(t *testing.T) {
	for name, binds := range map[string]string{"inherited": "", "bound by itself": "127.0.0.1:3000",
		"Go's :3000": ":3000"} {
		t.Run(name, func(t *testing.T) {
			m := lab.WithOwnBinary(t)
			m.Start(echo(t, binds))
			m.Serves(1)
			address := strings.TrimPrefix(m.Status().Programs[0].Listeners[0].Address, "udp:")
			blow(m, datagrams(address)).Lossless(t, name, m.Log)
		})
	}
}
