package usage

import (
	"os"
	"path/filepath"
	"testing"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/worker/spawn"
)

func TestHangingDiskHidesOnlyItsOwnFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := spawn.Find(&spawn.Execution{Argv: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	e.Detach().Close()
	os.Remove(path)
	hanging := spawn.File{Path: "/dead/web", Inode: 7}
	looks := &fileLooks{looks: map[spawn.File]*fileLook{hanging: {done: make(chan struct{})}}}
	for range 2 {
		st := &supervisor.Status{Programs: []supervisor.ProgramStatus{
			{Generations: []supervisor.GenerationStatus{{Files: []spawn.File{hanging}}}},
			{Generations: []supervisor.GenerationStatus{{Files: e.Files}, {Files: e.Files[:1]}, {Files: e.Files[:1], ByPath: "why"}}},
		}}
		looks.fill(st)
		changed := e.Files[0].Path
		if g := st.Programs[0].Generations[0]; len(g.Changed) > 0 {
			t.Errorf("on the disk that hangs: %+v", g.Changed)
		}
		for i, kept := range []bool{false, true, false} {
			g := st.Programs[1].Generations[i]
			if want := (supervisor.ChangedFile{Path: changed, Change: spawn.Removed, Kept: kept}); len(g.Changed) != 1 || g.Changed[0] != want {
				t.Errorf("%+v, want %+v", g.Changed, want)
			}
		}
	}
}
