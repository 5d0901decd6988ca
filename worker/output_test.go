package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// toFile sends both streams of a shell script to log.
func toFile(log *LogFile, script string) Spec {
	spec := shell(script)
	spec.Environment = []string{"PATH=" + os.Getenv("PATH")}
	spec.Stdout, spec.Stderr = Output{ToFile, log}, Output{ToFile, log}
	return spec
}

func TestAllOutputIsInTheFile(t *testing.T) {
	l, log := launcher(t), logFile(t)
	s := start(t, l, toFile(log, `i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; printf end`))
	must[Spawned](s)
	must[Exited](s)
	data := written(t, log)
	if !strings.HasSuffix(data, "line 1999\nend") || strings.Count(data, "\n") != 2000 {
		t.Errorf("%d bytes, ending in %q", len(data), data[max(0, len(data)-30):])
	}
}

func TestTailIsTheEndOfStderrAlone(t *testing.T) {
	l, log := launcher(t), logFile(t)
	s := start(t, l, toFile(log, `echo no; i=0; while [ $i -lt 30 ]; do echo e$i >&2; i=$((i+1)); done; printf 'last\033[m' >&2`))
	must[Spawned](s)
	e := must[Exited](s)
	if len(e.Tail) != tailLines || e.Tail[0] != "e11" || e.Tail[19] != "last [m" {
		t.Errorf("%q", e.Tail)
	}
}

func TestTailOfLongLinesIsBounded(t *testing.T) {
	var tl tail
	for i := range 100 {
		tl.add([]byte(strings.Repeat("x", 5000) + fmt.Sprint(i) + "\n"))
	}
	tl.add(bytes.Repeat([]byte("y"), 1<<20))
	lines := tl.lines()
	if len(lines) != 1 || len(lines[0]) != tailLine || cap(tl.data) > 4*tailBytes {
		t.Errorf("%d lines, %d bytes kept", len(lines), cap(tl.data))
	}
}

func TestLinesOfSeveralWorkersAreNotMixed(t *testing.T) {
	l, log := launcher(t), logFile(t)
	var all []*life
	for i := range 4 {
		c := string(rune('a' + i))
		s := start(t, l, toFile(log, fmt.Sprintf(`i=0; while [ $i -lt 200 ]; do printf %s; printf '%s\n'; i=$((i+1)); done`, strings.Repeat(c, 50), strings.Repeat(c, 50))))
		all = append(all, s)
	}
	for _, s := range all {
		s.end()
	}
	for line := range strings.Lines(written(t, log)) {
		if len(line) == 101 && line != strings.Repeat(line[:1], 100)+"\n" {
			t.Fatalf("mixed: %q", line)
		}
		if len(line) > 101 {
			t.Fatalf("mixed: %q", line)
		}
	}
}

func TestFileIsReopened(t *testing.T) {
	l, log := launcher(t), logFile(t)
	s := start(t, l, toFile(log, `echo before; echo >&$NOTIFY_FD; read x <&3; exit 0`))
	read, write, _ := os.Pipe()
	s.end()
	spec := toFile(log, `echo before; echo >&$NOTIFY_FD; read x <&3; echo after; exit 0`)
	spec.Sockets = []int{int(read.Fd())}
	os.Truncate(log.spec.Path, 0)
	s = start(t, l, spec)
	must[Spawned](s)
	must[ReadySaid](s)
	if !eventually(func() bool { data, _ := os.ReadFile(log.spec.Path); return string(data) == "before\n" }) {
		t.Error("the first line is missing")
	}
	if err := os.Rename(log.spec.Path, log.spec.Path+".1"); err != nil {
		t.Fatal(err)
	}
	log.Reopen()
	write.WriteString("go\n")
	must[Exited](s)
	if text := written(t, log); text != "after\n" {
		t.Errorf("%q", text)
	}
	read.Close()
	write.Close()
}

func TestReopenThatFailsKeepsTheOldFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	os.Mkdir(dir, 0o755)
	said := new(complaints)
	log := opened(t, LogFileSpec{Path: filepath.Join(dir, "log")}, said)
	os.Rename(dir, dir+".moved")
	log.Reopen()
	log.write([]byte("still\n"))
	if err := log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := said.all(); len(got) != 1 || !strings.Contains(got[0], "the old one stays in use: cannot open the log file "+log.spec.Path+": no such file") {
		t.Errorf("%q", got)
	}
	if data, _ := os.ReadFile(filepath.Join(dir+".moved", "log")); string(data) != "still\n" {
		t.Errorf("%q", data)
	}
	if _, err := OpenLogFile(t.Context(), log.spec, said.errors()); err == nil {
		t.Error("a directory was made")
	}
}

func TestFullDiskLosesOutputAndSaysSoOnce(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	said := new(complaints)
	log := opened(t, LogFileSpec{Path: "/dev/full"}, said)
	s := start(t, launcher(t), toFile(log, `i=0; while [ $i -lt 20000 ]; do echo aaaaaaaaaaaaaaaaa; i=$((i+1)); done; exit 4`))
	if !isReadyOrExit(s, 4) {
		t.Error("the worker was disturbed")
	}
	log.Close(t.Context())
	if got := said.all(); len(got) != 2 || !strings.Contains(got[0], "no space left") || !strings.Contains(got[1], "lines were lost") {
		t.Errorf("%q", got)
	}
	if n := log.sink.errors.Lost(); n != 20000 {
		t.Errorf("%d lines were lost", n)
	}
}

func TestGrandchildThatKeepsThePipeOpenDoesNotDelayTheEnd(t *testing.T) {
	reaped := make(chan int, 1000)
	l, log, f := launcher(t, OnOrphan(func(pid int, _ syscall.WaitStatus) { reaped <- pid })), logFile(t), tempFile(t)
	spec := toFile(log, `setsid sh -c 'echo $$ >&3; echo ready >&'$NOTIFY_FD'; exec sleep 100' & read x <&4; echo bye`)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	spec.Sockets = []int{int(f.Fd()), int(read.Fd())}
	s := start(t, l, spec)
	must[Spawned](s)
	must[ReadySaid](s)
	write.WriteString("go\n")
	must[Exited](s)
	if text := written(t, log); text != "bye\n" {
		t.Errorf("%q", text)
	}
	data, _ := os.ReadFile(f.Name())
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(pid, syscall.SIGKILL) // unless it was found to be a stray already
	for <-reaped != pid {
	}
}

func TestEndIsPostedThoughWhoeverTakesTheOutputHangs(t *testing.T) {
	l, hangs := launcher(t), make(chan struct{})
	spec := shell("echo out; echo err >&2; exit 6")
	spec.Stdout, spec.Stderr = Output{Kind: Capture}, Output{Kind: Capture}
	spec.Captured = func(string, int, []byte) { <-hangs }
	s := start(t, l, spec)
	must[Spawned](s)
	if e := must[Exited](s); e.Status.ExitStatus() != 6 {
		t.Errorf("%s", e)
	}
	close(hangs)
	s.w.side.Wait()
}
