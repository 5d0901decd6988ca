package usage

import (
	"testing"

	"golang.org/x/sys/unix"

	"example.org/supervisord/supervisor"
)

func TestUsageIsThatOfTheProcessGroup(t *testing.T) {
	st := &supervisor.Status{Programs: []supervisor.ProgramStatus{{Generations: []supervisor.GenerationStatus{{
		Workers: []supervisor.WorkerStatus{{PID: unix.Getpgrp()}, {PID: 1 << 29}, {}}}}}}}
	new(Gauge).Fill(st)
	workers := st.Programs[0].Generations[0].Workers
	if mine := workers[0]; mine.Processes == nil || *mine.Processes < 1 || *mine.Memory < 1<<20 || mine.Began == nil || mine.CPUPercent == nil {
		t.Errorf("this process group uses %+v", mine)
	}
	for _, none := range workers[1:] {
		if none.Processes != nil || none.Memory != nil || none.CPUPercent != nil {
			t.Errorf("%+v although no process is running", none)
		}
	}
}
