package worker

import (
	"os"
	"strings"
	"testing"

	"example.org/supervisord/worker/ready"
)

// toEinhorn is a Python worker with connect(), which connects to the control socket by its path, and born, the connection that it inherits.
func toEinhorn(t *testing.T, script string) Spec {
	spec := inPython(t, `
def connect():
    c = socket.socket(socket.AF_UNIX)
    c.connect(os.environ['EINHORN_SOCK_PATH'])
    return c
born = socket.socket(fileno=int(os.environ['EINHORN_SOCK_FD']))
ack = b'{"command":"worker:ack","pid":%d}\n' % os.getpid()
`+script)
	spec.Ready, spec.Einhorn = ready.Check{Method: ready.Notify}, true
	return spec
}

func TestAckToEinhornIsReady(t *testing.T) {
	l := launcher(t)
	for name, script := range map[string]string{
		"by the path":                        "c = connect(); c.sendall(ack); assert c.recv(1) == b''",
		"by the path, closed at once":        "c = connect(); c.sendall(ack); c.close()",
		"by the descriptor":                  "born.sendall(ack)",
		"by the descriptor, and closed":      "born.sendall(ack); born.close()",
		"in Ruby's words":                    "connect().sendall(b'---%%0Acommand: worker:ack%%0Apid: %d%%0A\\n' % os.getpid())",
		"in pieces":                          "c = connect()\nfor i in range(len(ack)): c.sendall(ack[i:i+1]); time.sleep(0.001)",
		"after many that say nothing":        "cs = [connect() for _ in range(30)]; connect().sendall(ack)",
		"after a question":                   "c = connect(); c.sendall(b'{\"command\":\"state\",\"id\":\"x\"}\\n'); assert b'supervisord' in c.recv(4096); c.sendall(ack)",
		"after an unreadable message":        "born.sendall(b'\\xff\\0\\n'); assert b'supervisord' in born.recv(4096); born.sendall(ack)",
		"after a ping":                       "born.sendall(b'{\"command\":\"worker:ping\",\"pid\":1}\\n' + ack)",
		"after too long a line":              "c = connect(); c.sendall(b'x' * 5000)\ntry: assert c.recv(1) == b''\nexcept ConnectionError: pass\nconnect().sendall(ack)",
		"by a child":                         "os._exit(connect().sendall(ack) or 0) if os.fork() == 0 else os.wait()",
		"twice, on the one it was born with": "born.sendall(ack); born.sendall(ack); time.sleep(0.05); born.sendall(ack)",
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, l, toEinhorn(t, script+"\ntime.sleep(0.1); say('STATUS=alive'); time.sleep(1000)"))
			must[Spawned](s)
			ready, alive := false, false
			for !ready || !alive { // they arrive on two paths, so in any order
				switch e := s.next().(type) {
				case ReadySaid:
					ready = true
				case Status:
					alive = e.Text == "alive"
				default:
					t.Fatalf("%T %v", e, e)
				}
			}
		})
	}
}

func TestMessageOtherThanAnAckIsNotReadiness(t *testing.T) {
	l := launcher(t)
	for name, message := range map[string]string{
		"no pid": `{"command":"worker:ack"}`, "another command": `{"command":"worker:nack","pid":1}`, "a line that does not end": `{"command":"worker:ack","pid":1}#`,
		"READY=1": "READY=1",
	} {
		t.Run(name, func(t *testing.T) {
			end := "\\n"
			if strings.HasSuffix(message, "#") {
				end = ""
			}
			notYet(start(t, l, toEinhorn(t, "c = connect(); c.sendall(b'"+strings.TrimSuffix(message, "#")+end+"')\nsay('STATUS=there'); time.sleep(1000)")))
		})
	}
}

func TestAckIsIgnoredWithAnotherReadyMethod(t *testing.T) {
	spec := toEinhorn(t, "connect().sendall(ack)\nsay('STATUS=there'); time.sleep(1000)")
	spec.Ready = ready.Check{Method: ready.Exec, Command: []string{"false"}}
	notYet(start(t, launcher(t), spec))
}

func TestAckRightBeforeTheEndIsHeard(t *testing.T) {
	l := launcher(t)
	for range 10 {
		s := start(t, l, toEinhorn(t, "c = connect(); c.sendall(ack); os.kill(os.getpid(), 9)"))
		must[Spawned](s)
		must[ReadySaid](s)
		must[Exited](s)
	}
}

func TestWithoutEinhornThereIsNoControlSocket(t *testing.T) {
	m := report(t, launcher(t), role("report"))
	for _, name := range []string{"env.EINHORN_SOCK_PATH", "env.EINHORN_SOCK_FD"} {
		if v, has := m[name]; has {
			t.Errorf("%s is %s", name, v)
		}
	}
}

func TestControlSocketIsForTheWorkersUserAlone(t *testing.T) {
	s := start(t, launcher(t), toEinhorn(t, "m = os.stat(os.environ['EINHORN_SOCK_PATH']).st_mode\nsay('STATUS=%o' % m)\ntime.sleep(1000)"))
	must[Spawned](s)
	if e := must[Status](s); e.Text != "140600" {
		t.Errorf("its mode is %s", e.Text)
	}
	path := s.w.channels.path + ".e"
	s.w.Signal(sysSignal(9), false)
	must[Exited](s)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", path, err)
	}
}
