package usage

import (
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab/leftover"
	"example.org/supervisord/internal/lab/must"
	"example.org/supervisord/socket"
	"example.org/supervisord/supervisor"
)

func TestMain(m *testing.M) { leftover.Main(m) }

func TestUsageIsThatOfTheProcessGroup(t *testing.T) {
	child := sleeper(t) // this process may have come from outside the PID namespace, without a group
	st := &supervisor.Status{Programs: []supervisor.ProgramStatus{{Generations: []supervisor.GenerationStatus{{
		Workers: make([]supervisor.WorkerStatus, 3)}}}}}
	st.Programs[0].Generations[0].Workers[0].PID, st.Programs[0].Generations[0].Workers[1].PID = child.Process.Pid, 1<<29
	workers := st.Programs[0].Generations[0].Workers
	must.Become(t, "its memory counts", func() bool { // exec ends before the program has pages of its own
		new(Gauge).Fill(st)
		return workers[0].Memory != nil && *workers[0].Memory >= 1<<16
	})
	if mine := workers[0]; mine.Processes == nil || *mine.Processes < 1 || mine.Began == nil ||
		mine.CPUPercent == nil {
		t.Errorf("the process group uses %+v", mine)
	}
	for _, none := range workers[1:] {
		if none.Processes != nil || none.Memory != nil || none.CPUPercent != nil {
			t.Errorf("%+v although no process is running", none)
		}
	}
}

func TestOnlyLanesThatGetConnectionsCountForTheLimitOfTheQueue(t *testing.T) {
	var fds []int
	for range 3 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			t.Cleanup(func() { unix.Close(fd) })
			err = unix.Listen(fd, 7)
		}
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	for name, c := range map[string]struct {
		lanes []socket.LaneStatus
		want  int
	}{
		"shared by slots": {nil, 21},
		"one of three serves": {[]socket.LaneStatus{{Members: []int{0}}, {Members: []int{1}, Share: 1}, {Members: []int{2}}},
			7},
		"a canary beside it": {[]socket.LaneStatus{{Members: []int{0}, Share: 0.05}, {Members: []int{1}, Share: 0.95},
			{Members: []int{2}}}, 14},
	} {
		q := acceptQueue(supervisor.ListenerStatus{FDs: fds, Lanes: c.lanes})
		if q == nil || q.Limit != c.want || q.Waiting != 0 {
			t.Errorf("%s: %+v, want a limit of %d", name, q, c.want)
		}
	}
}
