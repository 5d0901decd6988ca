package ready

import (
	"strings"
	"testing"

	"example.org/supervisord/socket/inherit"
)

func TestControlCommandsAsClientsWriteThem(t *testing.T) {
	ack := ControlCommand{Name: "worker:ack", PID: 1234}
	for text, want := range map[string]ControlCommand{
		`{"command":"worker:ack","pid":1234}`:                     ack,
		`{ "command" : "worker:ack", "pid" : 1234 }` + "\r":       ack,
		"---%0Acommand: worker:ack%0Apid: 1234%0A":                ack, // Psych
		"--- %0Acommand: worker:ack%0Apid: 1234%0A":               ack, // Syck
		"---%0A\"command\": 'worker:ack'%0A:pid: 1234%0A...%0A":   ack,
		"{command: worker:ack, pid: 1234}":                        ack,
		`{"command":"worker:ack","pid":"1234"}`:                   ack,
		strings.TrimSpace(string(inherit.EinhornAck(1234))):       ack,
		"---%0Acommand: 100%25 sure%0Aid:%0A":                     {Name: "100% sure"},
		`{"command":"signal","args":["USR1"],"id":7,"wait":true}`: {Name: "signal", ID: "7"},
	} {
		got, err := ParseControlCommand([]byte(text))
		if err != nil || got != want {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "READY=1", "- a%0A- b", `["worker:ack"]`, "null", "42", "{"} {
		if got, err := ParseControlCommand([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

func FuzzControlCommands(f *testing.F) {
	f.Add([]byte(`{"command":"worker:ack","pid":1}`))
	f.Add([]byte("---%0Acommand: worker:ack%0Apid: 1%0A"))
	f.Add([]byte("{%25: "))
	f.Fuzz(func(t *testing.T, line []byte) {
		if c, err := ParseControlCommand(line); err != nil && c != (ControlCommand{}) {
			t.Errorf("%q: %v, %v", line, c, err)
		}
	})
}
