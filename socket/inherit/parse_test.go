package inherit

import (
	"strconv"
	"strings"
	"testing"
)

func TestFDNameIsCutAt255(t *testing.T) {
	if n := len(FDName(strings.Repeat("x", 300))); n != 255 {
		t.Errorf("%d bytes", n)
	}
}

func FuzzParseEnvironment(f *testing.F) {
	f.Add("1", "3", "a:b:c", "80=3;90=4", "")
	f.Add("1", "", "", "8080=0=4", "12")
	f.Add("x", "-1", ":", "=;=", "x")
	f.Add("1", "1073741825", "", "", "")
	f.Fuzz(func(t *testing.T, pid, fds, names, ports, pidfd string) {
		found, err := parse([]string{"LISTEN_PID=" + pid, "LISTEN_FDS=" + fds, "LISTEN_FDNAMES=" + names,
			"SERVER_STARTER_PORT=" + ports, "LISTEN_PIDFDID=" + pidfd, "nonsense"}, 1)
		if err != nil {
			if found != nil {
				t.Error("an error and a result")
			}
			return
		}
		seen := make(map[int]bool)
		for _, i := range found {
			if i.FD < 0 || seen[i.FD] {
				t.Errorf("descriptor %s is reported twice or invalid: %+v", strconv.Itoa(i.FD), found)
			}
			seen[i.FD] = true
		}
	})
}
