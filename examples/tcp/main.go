// Tcp is a plain TCP worker that sends every line back. TCP cannot ask a client to reconnect, so after a stop each
// client may continue until it has been quiet for a while, or until the deadline.
package main

import (
	"bufio"
	"context"
	"flag"
	"log"
	"net"
	"time"

	"example.org/supervisord/worker/graceful"
)

func main() {
	address := flag.String("address", "127.0.0.1:8085", "where to listen when no socket is inherited")
	quiet := flag.Duration("quiet", 5*time.Second, "how long a client must be quiet before a stop disconnects it")
	flag.Parse()
	log.SetFlags(0)
	if err := run(*address, *quiet); err != nil {
		log.Fatal("tcp: ", err)
	}
}

func run(address string, quiet time.Duration) error {
	ln, err := graceful.Listener("tcp", address)
	if err != nil {
		return err
	}
	return graceful.Serve(context.Background(), graceful.Conns(ln, func(ctx context.Context, c net.Conn) {
		echo(ctx, c, quiet)
	}))
}

// echo sends lines back until the client goes, or is quiet after ctx ended.
func echo(ctx context.Context, c net.Conn, quiet time.Duration) {
	patience := func() { _ = c.SetReadDeadline(time.Now().Add(quiet)) }
	defer context.AfterFunc(ctx, patience)()
	lines := bufio.NewReader(c)
	for {
		line, err := lines.ReadSlice('\n')
		if _, sent := c.Write(line); err != nil || sent != nil {
			return
		}
		if ctx.Err() != nil {
			patience()
		}
	}
}
