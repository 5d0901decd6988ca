package ready

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/must"
)

func TestMeaninglessMessagesAreIgnored(t *testing.T) {
	for _, text := range []string{"READY=1\x00", "READY=1\nSTATUS=\xff", strings.Repeat("x", maxMessage+1)} {
		if m := parseNotification([]byte(text)); m != (Notification{}) {
			t.Errorf("%.20q gave %+v", text, m)
		}
	}
	for _, text := range []string{"READY=0", "READY", "XREADY=1", "EXTEND_TIMEOUT_USEC=-1",
		"EXTEND_TIMEOUT_USEC=99999999999999999999", "ERRNO=x", "WATCHDOG=0", "X_SUPERVISORD_DRAINS=0", "X_SUPERVISORD_DRAINS",
		""} {
		if m := parseNotification([]byte(text)); m != (Notification{}) {
			t.Errorf("%q gave %+v", text, m)
		}
	}
}

func FuzzParseNotification(f *testing.F) {
	for _, s := range []string{"READY=1", "STOPPING=1\nSTATUS=a", "EXTEND_TIMEOUT_USEC=1\nERRNO=3", "WATCHDOG=trigger",
		"\x00", "BARRIER=1", "=\n=="} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := parseNotification(data)
		if !utf8.ValidString(m.Status) || strings.ContainsAny(m.Status, "\n\x00") || m.Extend < 0 {
			t.Errorf("%+v", m)
		}
		if m.Ready && !strings.Contains("\n"+string(data)+"\n", "\nREADY=1\n") {
			t.Error("ready without READY=1")
		}
	})
}

// FuzzDatagrams: a datagram with any number of descriptors says who sent it and what is in it, and leaves no descriptor
// behind.
func FuzzDatagrams(f *testing.F) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
	must.Do(f, unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1))
	f.Add([]byte("READY=1"), byte(3))
	f.Add([]byte("FDSTORE=1\nFDNAME=x"), byte(253))
	f.Add(make([]byte, maxMessage+1), byte(0))
	f.Add([]byte{}, byte(1))
	f.Fuzz(func(t *testing.T, data []byte, descriptors byte) {
		fds := make([]int, min(descriptors, 253)) // SCM_MAX_FD
		for i := range fds {
			fds[i] = pair[1]
		}
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		if err := unix.Sendmsg(pair[1], data, rights, nil, 0); err != nil {
			t.Skip(err) // too long for the socket
		}
		next := must.Get(unix.Dup(0))(t)
		unix.Close(next)
		m, sender, err := Peek(pair[0])
		switch want := parseNotification(data); {
		case err != nil:
			t.Fatal(err)
		case m != want:
			t.Errorf("%q with %d descriptors is %+v instead of %+v", data, len(fds), m, want)
		case len(fds) == 0 && (sender == nil || int(sender.Pid) != os.Getpid()):
			t.Errorf("sent by %+v", sender)
		case sender != nil && int(sender.Pid) != os.Getpid():
			t.Errorf("with %d descriptors sent by %+v", len(fds), sender)
		}
		Take(pair[0])
		if _, _, err := Peek(pair[0]); err != unix.EAGAIN {
			t.Errorf("the datagram stays: %v", err)
		}
		after := must.Get(unix.Dup(0))(t)
		unix.Close(after)
		if after != next {
			t.Errorf("the next free descriptor was %d and is %d", next, after)
		}
	})
}
