package tests

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// crude is a program with a worker in Python that dies of TERM, and lets a script do the rest; s is its socket.
func crude(t *testing.T, script, drain string) string {
	return `
[program.web]
command = ["` + lab.Need(t, "python3") + `", "-c", """
import os, socket, time
s = socket.socket(fileno=3)
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
` + script + `
"""]
ready = { method = "notify", accepts = false }
drain = { ` + drain + ` }
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
`
}

// parts is a worker that dies of TERM. To each line of a client it answers with the parts 0 to 4, as far apart as the
// line says, in seconds, and a line end.
const parts = `
import threading
def one(c):
    for line in c.makefile():
        for i in range(5):
            c.sendall(b"%d" % i)
            time.sleep(float(line))
        c.sendall(b"%c" % 10)
while True: threading.Thread(target=one, args=(s.accept()[0],), daemon=True).start()`

func TestAnswerInPartsIsNotCutByADeploy(t *testing.T) {
	for _, c := range []struct {
		name, gap string
		before    int // requests on the connection
	}{{"on a new connection, 2 s apart", "2", 0}, {"on a keep-alive connection, 0.3 s apart", "0.3", 6}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, crude(t, parts, ""))
			m.Serves(1)
			conn, err := net.Dial("tcp", m.Address())
			lab.Must(t, err)
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(lab.Patience))
			r := bufio.NewReader(conn)
			for range c.before {
				send(conn, "0")
				_, err := r.ReadString('\n')
				lab.Must(t, err)
			}
			send(conn, c.gap)
			if _, err := r.ReadByte(); err != nil { // the first part
				t.Fatal(err)
			}
			m.CtlOK("reload", "web")
			if rest, err := r.ReadString('\n'); err != nil || rest != "1234\n" {
				t.Errorf("the rest of the answer is %q, %v", rest, err)
			}
			conn.Close()
			m.Gone(1)
		})
	}
}

func send(c net.Conn, line string) { io.WriteString(c, line+"\n") }

// TestSlowFirstAnswerOverTLSIsNotCutByADeploy has a server that sends session tickets before it works, as OpenSSL does.
func TestSlowFirstAnswerOverTLSIsNotCutByADeploy(t *testing.T) {
	for _, work := range []string{"1.5", "3"} {
		t.Run(work+" s", func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			m.Start(crude(t, `
import ssl, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("`+m.File("pair.pem", certificate(t))+`")
def one(c):
    c = context.wrap_socket(c, server_side=True)
    c.recv(100)
    open("{dir}/asked", "w").close()
    time.sleep(`+work+`)
    c.sendall(b"answer")
    c.close()
while True: threading.Thread(target=one, args=(s.accept()[0],), daemon=True).start()`, ""))
			m.Serves(1)
			c, err := tls.Dial("tcp", m.Address(), &tls.Config{InsecureSkipVerify: true})
			lab.Must(t, err)
			defer c.Close()
			io.WriteString(c, "request")
			m.Until("the worker has the request", func() bool { return lab.Exists(m.Path("asked")) })
			m.CtlOK("reload", "web")
			answer := make([]byte, 6)
			if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "answer" {
				t.Errorf("the answer is %q, %v", answer, err)
			}
			m.Gone(1)
			m.Never(lab.Says("reload report"), lab.Gen(2), lab.Contains(`"left_`))
		})
	}
}

func TestWorkersThatAreScaledAwayFinishWhatTheyHave(t *testing.T) {
	for _, gap := range []string{"0.1", "0.5"} {
		t.Run("parts "+gap+" s apart", func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, strings.Replace(crude(t, parts, `silence = "1s"`), "ready =", "workers = 4\nready =", 1))
			m.Serves(1)
			var clients sync.WaitGroup
			var conns []net.Conn
			for range 12 {
				c, err := net.Dial("tcp", m.Address())
				lab.Must(t, err)
				defer c.Close()
				c.SetDeadline(time.Now().Add(lab.Patience))
				conns = append(conns, c)
			}
			begun := make(chan bool, len(conns))
			for _, c := range conns {
				clients.Go(func() {
					defer c.Close()
					r := bufio.NewReader(c)
					send(c, gap)
					first, err := r.ReadByte()
					begun <- true
					if rest, err2 := r.ReadString('\n'); err != nil || err2 != nil || string(first)+rest != "01234\n" {
						t.Errorf("the answer is %q, %v, %v", string(first)+rest, err, err2)
					}
				})
			}
			for range conns {
				<-begun
			}
			m.CtlOK("scale", "web", "1")
			clients.Wait()
			m.Until("one worker is left", func() bool { return len(m.Status().Programs[0].Generations[0].Workers) == 1 })
		})
	}
}

// certificate returns a certificate and its key, for 127.0.0.1.
func certificate(t *testing.T) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	lab.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{{127, 0, 0, 1}}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	lab.Must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	lab.Must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}
