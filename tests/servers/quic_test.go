package servers

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/socket"
)

// TestAioquicLosesNoRequest has HTTP/3 on connections that stay open, and on new ones.
func TestAioquicLosesNoRequest(t *testing.T) {
	t.Parallel()
	python := filepath.Join(cache(t), "python-quic/bin/python")
	if _, err := os.Stat(python); err != nil {
		t.Skipf("aioquic is missing: scripts/test installs it from tests/servers/requirements.txt: %v", err)
	}
	for _, handover := range []string{"quic", "flow"} {
		t.Run(handover, func(t *testing.T) {
			t.Parallel()
			s := prepareFrom(t, examples, "aioquic")
			s.replace("aioquic.toml", "python3", python)
			s.replace("aioquic.toml", `handover = "quic"`, fmt.Sprintf("handover = %q", handover))
			s.losesNothingOverQUIC(handover, s.at("127.0.0.1:8142"), 10)
		})
	}
}

// TestNginxLosesNoNewConnectionOverQUIC has clients with a new connection for each request: nginx 1.26 closes those
// that are kept in the moment in which it is told to stop, and a request that crosses this is lost.
func TestNginxLosesNoNewConnectionOverQUIC(t *testing.T) {
	t.Parallel()
	nginx, err := exec.LookPath("nginx")
	if err == nil {
		if out, _ := exec.Command(nginx, "-V").CombinedOutput(); !strings.Contains(string(out), "http_v3_module") {
			err = fmt.Errorf("%s has no HTTP/3", nginx)
		}
	}
	if err != nil {
		t.Skip("needs nginx with HTTP/3, as Debian 13 has it: ", err)
	}
	s := prepareFrom(t, examples, "nginx-quic")
	s.replace("nginx-quic.toml", "/usr/sbin/nginx", nginx)
	s.certify("nginx-quic/cert.pem", "nginx-quic/key.pem")
	s.losesNothingOverQUIC("flow", s.at("127.0.0.1:8143"), 1)
}

// certify writes a certificate that nobody verifies.
func (s *site) certify(cert, key string) {
	s.T.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	lab.Must(s.T, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	lab.Must(s.T, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	lab.Must(s.T, err)
	s.File(cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public})))
	s.File(key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

// losesNothingOverQUIC redeploys the site under the load of twenty clients, every so many of which makes a new
// connection for each request.
func (s *site) losesNothingOverQUIC(handover, at string, churning int) {
	s.T.Helper()
	if wrong := (socket.Spec{Handover: socket.Handover(handover)}).Unpermitted(); wrong != nil {
		s.T.Skip(wrong)
	}
	s.here = true
	s.drain("5s")
	s.launch()
	s.serves()
	load := exec.Command(lab.Build(s.T, "examples/measure/quic"), "-clients", "20", "-churning", fmt.Sprint(churning),
		"-address", at)
	var why strings.Builder
	load.Stderr = &why
	says, err := load.StdoutPipe()
	lab.Must(s.T, err)
	until, err := load.StdinPipe()
	lab.Must(s.T, err)
	lab.Must(s.T, load.Start())
	s.redeploy()
	lab.Must(s.T, until.Close())
	out := ""
	for lines := bufio.NewScanner(says); lines.Scan(); {
		out = lines.Text()
	}
	lab.Must(s.T, load.Wait())
	s.T.Logf("%s with %s: %d redeploys: %s", s.name, handover, s.redeploys, out)
	var handshakes, requests, failed int
	if _, err := fmt.Sscanf(out, "%d handshakes, %d requests, %d failed", &handshakes, &requests, &failed); err != nil ||
		failed > 0 || handshakes < 20*s.redeploys {
		s.T.Errorf("requests failed, or there were too few: %s (%v)\n%s", out, err, &why)
	}
}
