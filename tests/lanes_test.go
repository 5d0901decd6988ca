package tests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/supervisor"
)

// state returns what `supervisord status --json` says of the program web.
func state(m *lab.Supervisord) *supervisor.ProgramStatus {
	m.T.Helper()
	var st supervisor.Status
	lab.Must(m.T, json.Unmarshal([]byte(m.CtlOK("status", "--json")), &st))
	return st.Program("web")
}

// shows waits until `supervisord status` shows all words.
func shows(m *lab.Supervisord, words ...string) {
	m.T.Helper()
	m.Until("status shows "+strings.Join(words, ", "), func() bool {
		text := m.CtlOK("status")
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	})
}

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

// TestStatusShowsWhatIsInHand has an old generation that is answering one request, when another connection is idle.
func TestStatusShowsWhatIsInHand(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	hold := m.File("hold", "")
	m.Start(crude(t, `
a = s.accept()[0]
a.recv(100)
b = s.accept()[0]
while os.path.exists("{dir}/hold"): time.sleep(.01)
a.sendall(b"answer")
a.close()
time.sleep(1000)`, `timeout = "1m"`))
	m.Serves(1)
	asks, err := net.Dial("tcp", m.Address())
	lab.Must(t, err)
	defer asks.Close()
	io.WriteString(asks, "request")
	idle, err := net.Dial("tcp", m.Address())
	lab.Must(t, err)
	defer idle.Close()
	m.Reload()
	m.Serves(2)
	shows(m, "generation 1 drains: 1 being answered, 1 idle", "draining (")
	p := state(m)
	g := p.Generations[len(p.Generations)-1]
	if g.Number != 1 || g.Share != 0 || g.InHand == nil || g.InHand.Answering != 1 || g.InHand.Idle != 1 {
		t.Errorf("the old generation is %+v", g)
	}
	if lanes := p.Listeners[0].Lanes; len(lanes) != 2 || lanes[0].Generation != 1 || lanes[0].Share != 0 ||
		lanes[1].Share != 1 {
		t.Errorf("the lanes are %+v", lanes)
	}
	lab.Must(t, os.Remove(hold))
	if answer, err := io.ReadAll(asks); err != nil || string(answer) != "answer" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	m.Gone(1)
	r := state(m).FindReload(2)
	if r.Left != nil || r.Reset != 0 || r.Quiet < 100*time.Millisecond || r.Flipped.IsZero() {
		t.Errorf("the record is %+v", r)
	}
}

// TestReloadSaysWhatWasLeftAndReset has workers that never read, and one that never accepts.
func TestReloadSaysWhatWasLeftAndReset(t *testing.T) {
	for _, c := range []struct {
		name, script, left, reset string
		unread, queued            int
	}{
		{"unread", "all = []\nwhile True: all.append(s.accept())", "2 unread", "", 2, 0},
		{"not accepted", "time.sleep(1000)", "2 waiting to be accepted", "2 connections were reset that waited", 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := lab.Start(t, crude(t, c.script, `timeout = "2s"`))
			m.Serves(1)
			var conns []net.Conn
			for range 2 {
				conn, err := net.Dial("tcp", m.Address())
				lab.Must(t, err)
				defer conn.Close()
				io.WriteString(conn, "request")
				conns = append(conns, conn)
			}
			text := m.CtlOK("reload", "web", "--drained", "--verbose")
			for _, conn := range conns {
				conn.SetReadDeadline(time.Now().Add(lab.Patience))
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("a client sees %v", err)
				}
			}
			for _, want := range []string{"drain.timeout stopped it with connections in use: " + c.left, c.reset} {
				if !strings.Contains(text, want) {
					t.Errorf("there is no %q in\n%s", want, text)
				}
			}
			r := state(m).FindReload(2)
			if r.Left == nil || r.Left.Unread != c.unread || r.Left.Queued != c.queued || r.Reset != c.queued ||
				r.Quiet < 2*time.Second {
				t.Errorf("the record is %+v", r)
			}
			shows(m, "queue 0/")
			m.Await(lab.Says("reload report"), lab.Gen(2), lab.Contains(`"quiet_ms":`), lab.Contains(`"left_`))
		})
	}
}

// TestSlowAnswerOverTLSIsNotCutOff has a worker that sends its TLS session tickets when the request has arrived, as
// OpenSSL does, and dies of TERM.
func TestSlowAnswerOverTLSIsNotCutOff(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	pair := m.File("pair.pem", certificate(t))
	m.Start(crude(t, `
import ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("`+pair+`")
while True:
    c = context.wrap_socket(s.accept()[0], server_side=True)
    c.recv(100)
    open("{dir}/asked", "w").close()
    time.sleep(.7)
    c.sendall(b"answer")
    c.close()`, `timeout = "1m"`))
	m.Serves(1)
	c, err := tls.Dial("tcp", m.Address(), &tls.Config{InsecureSkipVerify: true})
	lab.Must(t, err)
	defer c.Close()
	io.WriteString(c, "request")
	m.Until("the worker has the request", func() bool { return lab.Exists(m.Path("asked")) })
	m.Reload()
	answer := make([]byte, 6)
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "answer" {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	m.Gone(1)
	if r := state(m).FindReload(2); r.Left != nil || r.Reset != 0 {
		t.Errorf("the record is %+v", r)
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
