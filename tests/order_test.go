package tests

import (
	"strings"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

// inOrder is a program that comes after db, which gets ready when its gate opens.
const inOrder = `
[program.db]
command = [{worker}, "gate={dir}/gate"]
ready.method = "notify"
[program.web]
command = [{worker}]
after = ["db"]
ready.method = "notify"
`

func TestStartWaitsForOtherProgramsAndStopIsInReverse(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(inOrder)
	m.Await(lab.Says("the start waits"), lab.Program("web"))
	m.Upgrade(lab.Upgraded)
	if out := m.CtlOK("status", "web"); !strings.Contains(out, "waits for db") {
		t.Errorf("status does not say what the program waits for:\n%s", out)
	}
	reload := m.CtlStart("reload", "web")
	reload.Says("waits for db")
	if n := m.Count(lab.Says(lab.TrialBegan), lab.Program("web")); n > 0 {
		t.Error("web has started before db serves")
	}
	m.Open(gate)
	reload.Ends(0)
	db, web := m.Await(lab.Says(lab.GenerationServes), lab.Program("db")), m.Await(lab.Says(lab.TrialBegan),
		lab.Program("web"))
	if web.N < db.N {
		t.Errorf("web has started before db serves:\n%s\n%s", web.Text, db.Text)
	}

	m.Signal(syscall.SIGTERM)
	m.Ends(0)
	stopped, told := m.Await(lab.Says(lab.ProgramStopped), lab.Program("web")), m.Await(lab.Says(lab.WorkerTold),
		lab.Program("db"))
	if told.N < stopped.N {
		t.Errorf("db was told to stop before web had stopped:\n%s\n%s", told.Text, stopped.Text)
	}
}

func TestRemovedProgramsStopInReverse(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	gate := m.Gate("gate")
	m.Start(inOrder + strings.ReplaceAll(lab.Plain, "web", "other"))
	m.Open(gate)
	m.Await(lab.Says(lab.GenerationServes), lab.Program("web"))
	m.Write(strings.ReplaceAll(lab.Plain, "web", "other"))
	m.CtlOK("reload")
	told := m.Await(lab.Says(lab.WorkerTold), lab.Program("db"))
	if stopped := m.Await(lab.Says(lab.ProgramStopped), lab.Program("web")); told.N < stopped.N {
		t.Errorf("db was told to stop before web had stopped:\n%s\n%s", told.Text, stopped.Text)
	}
}
