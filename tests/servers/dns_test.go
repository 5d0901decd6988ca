package servers

import (
	"net"
	"time"

	"example.org/supervisord/internal/lab/load"
)

// resolvers returns clients that ask by UDP, and ask once.
func resolvers(s *site) []clients {
	at := s.at("127.0.0.1:8125")
	return []clients{{"udp", 12, load.Measure(func() error {
		conn, err := net.Dial("udp", at)
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(answerTimeout))
		if _, err := conn.Write(query); err != nil {
			return err
		}
		head := make([]byte, 512)
		n, err := conn.Read(head)
		return answered(head[:n], err)
	})}}
}
