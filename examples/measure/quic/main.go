// Quic is an HTTP/3 server on quic-go that writes its lane into its connection IDs, and the clients that find out
// whether all datagrams reach the generation that they belong to.
//
//	quic                                        the server, at fd 3
//	quic -clients 1000 -address 127.0.0.1:443   clients, each with one connection after the other, until stdin ends; one
//	                                            of ten makes a new one for each request (-churning 10)
//
// On TERM the server has each client close its connection with its next answer, and ends when all have gone: Shutdown
// of http3.Server forgets a client that shakes hands meanwhile. It complains of datagrams that belong to another
// generation. Whenever one generation has answered all clients last, these print "settled" and its number, and
// at the end what became of their requests. They know a generation by the header of this name.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"example.org/supervisord/examples/measure/certificate"
	"example.org/supervisord/worker/graceful"
)

func main() {
	log.SetFlags(0)
	count := flag.Int("clients", 0, "be so many clients")
	churning := flag.Int("churning", 10, "one of so many clients makes a new connection for each request")
	address := flag.String("address", "", "where the server is")
	flag.Parse()
	if *count > 0 {
		told, err := load(*count, *churning, *address)
		if err != nil {
			log.Fatal("quic: ", err)
		}
		fmt.Println(told)
		return
	}
	log.Fatal("quic: ", serve())
}

// settings wait as long as the clients do, on a busy machine too.
var settings = &quic.Config{HandshakeIdleTimeout: answerTimeout, MaxIdleTimeout: answerTimeout}

// draining is for how long a connection that has ended is answered for (RFC 9000, 10.2): its client may have sent more.
const draining = 200 * time.Millisecond

// ids are the connection IDs of the server.
type ids struct{ *graceful.ConnectionIDs }

func (i ids) GenerateConnectionID() (quic.ConnectionID, error) {
	id, err := i.ConnectionIDs.GenerateConnectionID()
	return quic.ConnectionIDFromBytes(id), err
}

func serve() error {
	conn, err := net.FilePacketConn(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	generator, err := graceful.NewConnectionIDs()
	if err != nil {
		return err
	}
	secure, err := certificate.SelfSigned()
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: watched{conn.(*net.UDPConn)}, ConnectionIDGenerator: ids{generator}}
	listener, err := transport.ListenEarly(http3.ConfigureTLSConfig(secure), settings)
	if err != nil {
		return err
	}
	var told atomic.Bool
	var open atomic.Int64
	endIfAlone := func() {
		if open.Load() == 0 && told.Load() {
			os.Exit(0)
		}
	}
	server := &http3.Server{
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			open.Add(1)
			context.AfterFunc(c.Context(), func() {
				open.Add(-1)
				time.AfterFunc(draining, endIfAlone)
			})
			return ctx
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Generation", os.Getenv("SUPERVISORD_GENERATION"))
			if told.Load() {
				w.Header().Set("Last", "true")
			}
		}),
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		told.Store(true)
		time.AfterFunc(draining, endIfAlone)
	}()
	return server.ServeListener(listener)
}

// watched complains of datagrams with an ID that a server has made, but not this one.
type watched struct{ socket }

// socket has what quic-go wants of one, but not what would let it pass by ReadFrom.
type socket interface {
	net.PacketConn
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

func (c watched) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.socket.ReadFrom(b)
	const idOfLong, idOfShort, made = 6, 1, 7
	at := idOfShort
	if n > idOfLong+made && b[0]&0x80 != 0 {
		at = idOfLong
		if b[idOfLong-1] != made {
			return n, from, err
		}
	}
	if n > idOfLong+made && strconv.Itoa(int(b[at])) != os.Getenv("SUPERVISORD_LANE") {
		log.Printf("generation %s, with lane %s, has got a datagram of lane %d", os.Getenv("SUPERVISORD_GENERATION"),
			os.Getenv("SUPERVISORD_LANE"), b[at])
	}
	return n, from, err
}
