package lab

import (
	"os/exec"
	"testing"
)

func TestDiskHangsAndGoesOn(t *testing.T) {
	d := NewDisk(t)
	write := func(line string) *exec.Cmd {
		c := exec.Command("sh", "-c", "echo "+line+" >> "+d.Path("log"))
		Must(t, c.Start())
		return c
	}
	Must(t, write("one").Wait())
	d.Hang()
	killed := write("two")
	killed.Process.Kill()
	if err := killed.Wait(); err == nil || d.Read("log") != "one\n" {
		t.Errorf("%v, and the file has %q", err, d.Read("log"))
	}
	waits := write("three")
	d.Resume()
	Must(t, waits.Wait())
	Must(t, exec.Command("mv", d.Path("log"), d.Path("log.1")).Run())
	if got := d.Read("log.1"); got != "one\nthree\n" {
		t.Errorf("the file has %q", got)
	}
}
