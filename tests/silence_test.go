package tests

import (
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
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// sendsTickets is a worker that dies of TERM. It works for WORK seconds on each request.
const sendsTickets = `
import os, socket, ssl, sys, threading, time
os.chdir(sys.argv[1])
s = socket.socket(fileno=3)
os.write(int(os.environ["NOTIFY_FD"]), b"\n")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("pair.pem")
def one(c):
    c = context.wrap_socket(c, server_side=True)
    c.recv(100)
    open("asked", "w").close()
    time.sleep(WORK)
    c.sendall(b"answer")
    c.close()
while True: threading.Thread(target=one, args=(s.accept()[0],), daemon=True).start()`

// TestSlowFirstAnswerOverTLSIsNotCutByADeploy has a server that sends session tickets before it works, as OpenSSL does.
func TestSlowFirstAnswerOverTLSIsNotCutByADeploy(t *testing.T) {
	for _, work := range []string{"1.5", "3"} {
		t.Run(work+" s", func(t *testing.T) {
			t.Parallel()
			m := lab.Prepare(t)
			m.File("pair.pem", certificate(t))
			m.File("worker", strings.Replace(sendsTickets, "WORK", work, 1))
			m.Start("[program.web]\ncommand = [\"" + lab.Need(t, "python3") + `", "{dir}/worker", "{dir}"]
ready = { method = "notify", accepts = false }
listen = ["127.0.0.1:0"]
`)
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
