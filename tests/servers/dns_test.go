package servers

import (
	"context"
	"net"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
)

func dialUDP(address string) lab.Dialer {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "udp", address) }
}

func resolveUDP(c *load.Wire, _ bool) (closes bool, err error) {
	if _, err := c.Conn.Write(query); err != nil {
		return true, err
	}
	head := make([]byte, 512)
	n, err := c.Conn.Read(head)
	return true, answered(head[:n], err)
}

// resolvers returns clients that ask by UDP, and ask once.
func resolvers(s *site) []clients {
	driver := &load.Driver{Dial: dialUDP(s.at("127.0.0.1:8125")), Ask: resolveUDP, Timeout: lab.AnswerTimeout}
	return []clients{{"udp", 12, driver.Send}}
}

func TestDnsmasqAnswersEveryDatagramWithAHUPEvery100Milliseconds(t *testing.T) {
	t.Parallel()
	needs(t, "dnsmasq-base", "/usr/sbin/dnsmasq")
	s := prepareFrom(t, examples, "dnsmasq")
	s.launch()
	storm := lab.Storm{
		Clients:  lab.Clients{Count: 50, Dial: dialUDP(s.serves().at("127.0.0.1:8125")), Ask: resolveUDP},
		Requests: 200_000, Every: 100 * time.Millisecond,
	}
	if lab.Long() {
		storm.Requests, storm.Reloads = 1_000_000, 50
	}
	blow(s, storm).Lossless(t, "dnsmasq", s.Log)
}
