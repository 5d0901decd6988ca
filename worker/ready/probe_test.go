package ready

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab/must"
)

// TestProbeOfAListenerByTCPNeedsAWorkerThatAccepts: the supervisor listens on the socket, too.
func TestProbeOfAListenerByTCPNeedsAWorkerThatAccepts(t *testing.T) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			at := "127.0.0.1:0"
			if network == "unix" {
				at = filepath.Join(t.TempDir(), "s")
			}
			ln := must.Get(lc.Listen(t.Context(), network, at))(t)
			defer ln.Close()
			probe := Check{Method: TCP, Listener: "web", Address: "{listener:web}"}.Probe(Asked{
				Dial: func(ctx context.Context, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, ln.Addr().String())
				},
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := probe(ctx); err == nil || !strings.Contains(err.Error(), "does not accept") {
				t.Errorf("nobody accepts: %v", err)
			}
			for what, serve := range map[string]func(net.Conn){
				"keeps it": func(c net.Conn) { t.Cleanup(func() { c.Close() }) }, "closes it": func(c net.Conn) { c.Close() },
				"speaks first": func(c net.Conn) { c.Write([]byte("220 hello")); t.Cleanup(func() { c.Close() }) },
			} {
				go func() {
					for range 2 { // the first one is that of the probe before
						if c, err := ln.Accept(); err == nil {
							serve(c)
						}
					}
				}()
				if err := probe(t.Context()); err != nil {
					t.Errorf("a worker that %s: %v", what, err)
				}
				if c, err := net.Dial(network, ln.Addr().String()); err == nil {
					c.Close()
				}
			}
		})
	}
}
