package fleet

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/supervisor/program"
)

// poison is a file on a host with which a release fails there, if the release has these lines.
const (
	poison    = "/etc/poison"
	sensitive = "[ ! -e " + poison + " ] || { echo 'cannot read /etc/web.conf: permission denied' >&2; exit 1; }\n"
)

// atOnce is a roll in one batch.
var atOnce = []string{"-e", "roll_serial=100%"}

// serial is a roll in batches of these sizes.
func serial(sizes string) []string { return []string{"-e", `{"roll_serial": [` + sizes + `]}`} }

func TestRollStopsAtTheFirstHostThatFails(t *testing.T) {
	size := 3 // ansible needs seconds of CPU for each
	if lab.Long() || *write {
		size = 12
	}
	f := newFleet(t, size)
	f.installs()
	if lab.Long() {
		f.firstReleaseFails()
	}
	f.firstRelease()
	f.press()
	f.checkModeChangesNothing()
	f.failsInTheSecondBatch()
	f.secondRunChangesNothing()
	if lab.Long() && !*write {
		f.goesWell()
		f.diesInItsCanary()
		f.failsToVerify()
		f.cannotBeReached()
		f.goesAwayInTheMiddle()
		f.goesAwayBeforeItsBatch()
	}
	f.lossless()
	if lab.Long() && !*write {
		f.masterIsKilled()
	}
}

// installs installs supervisord; the second time nothing changes.
func (f *fleet) installs() {
	f.t.Helper()
	f.play("site.yml", atOnce...).says(0)
	f.play("site.yml", "--limit", "web-01").says(0, "changed=0")
}

func (f *fleet) firstReleaseFails() {
	f.t.Helper()
	f.release("0", "echo 'cannot open the database' >&2; exit 1\n")
	f.roll("0", "-e", "supervisord_timeout=10s").says(2, "web-01  rolled back", "web-02  untouched",
		"cannot open the database")
}

func (f *fleet) firstRelease() {
	f.t.Helper()
	f.release("1", "")
	f.roll("1", atOnce...).says(0, "web-01  deployed")
	f.serve("1", f.hosts...)
}

func (f *fleet) checkModeChangesNothing() {
	f.t.Helper()
	before := f.generations()
	f.release("2", sensitive)
	f.roll("2", "--check", "--limit", "web-01").says(0, "web would go from 1-", " to 2-", "changed=1")
	f.unchanged(before, f.hosts...)
	f.serve("1", f.hosts[0])
}

// failsInTheSecondBatch rolls release 2 over a host, a third of them, and the others: after the last host of the second
// batch, which fails, no host is touched.
func (f *fleet) failsInTheSecondBatch() {
	f.t.Helper()
	second := len(f.hosts) / 3
	deployed, fails, rest := f.hosts[:second], f.hosts[second], f.hosts[second+1:]
	fails.file(poison, "")
	before := f.generations()
	p := f.roll("2", serial(fmt.Sprintf("1, %d, %d", second, len(rest)))...)
	p.says(2, "web-01  deployed     2", deployed[second-1].name+"  deployed     2", fails.name+"  rolled back  1",
		rest[0].name+"  untouched",
		fails.name+" failed at the step reload: web: generation 2 failed: ",
		"exited with status 1; generation 1 still serves",
		"its last lines:\n    cannot read /etc/web.conf: permission denied")
	f.serve("2", deployed...)
	f.serve("1", f.hosts[second:]...)
	f.unchanged(before, rest...)
	f.transcript(p)
}

func (f *fleet) secondRunChangesNothing() {
	f.t.Helper()
	before := f.generations()
	f.roll("2", "--limit", "web-01").says(0, "changed=0")
	f.unchanged(before, f.hosts...)
}

func (f *fleet) goesWell() {
	f.t.Helper()
	f.release("3", sensitive)
	lab.Must(f.t, os.Remove(f.hosts[len(f.hosts)/3].root+poison))
	f.roll("3").says(0, f.last()+"  deployed  3")
	f.serve("3", f.hosts...)
}

func (f *fleet) diesInItsCanary() {
	f.t.Helper()
	before := f.generations()
	f.release("4", "", "-exit-in", "500ms")
	f.roll("4", "-e", "supervisord_canary_for=5s").says(2, "web-01  rolled back  3", "web-02  untouched",
		"web-01 failed at the step reload: ", "exited with status 3")
	f.serve("3", f.hosts...)
	f.unchanged(before, f.hosts[1:]...)
}

// failsToVerify deploys a release that serves and then does not answer as it should: the old generation, which is kept,
// serves again.
func (f *fleet) failsToVerify() {
	f.t.Helper()
	f.release("5", "")
	f.roll("5", "-e", "supervisord_verify_url=http://{{ ansible_host }}:1/", "-e", "supervisord_keep=60s").says(2,
		"web-01  rolled back  3", "web-02  untouched", "web-01 failed at the step verify")
	f.serve("3", f.hosts...)
	if r := f.hosts[0].status().Reloads; !slices.ContainsFunc(r,
		func(r program.ReloadRecord) bool { return r.RolledBackBy != "" }) {
		f.t.Error("the old generation was deployed again, although it was kept")
	}
}

func (f *fleet) cannotBeReached() {
	f.t.Helper()
	f.release("6", "")
	before := f.generations()
	f.hosts[2].vanish()
	f.roll("6").says(4, "web-01  untouched", "web-03  unreachable")
	f.unchanged(before, f.hosts...)
	f.hosts[2].comeBack(f)
}

// goesAwayInTheMiddle makes a host of the first batch unreachable while it tries a release. supervisord finishes
// without the deploy host.
func (f *fleet) goesAwayInTheMiddle() {
	f.t.Helper()
	before := f.generations()
	p := f.rolling("6", append(serial("3, 9"), "-e", "supervisord_canary_for=10s")...)
	f.hosts[1].tries()
	f.hosts[1].vanish()
	(<-p).says(2, "web-01  deployed", "web-02  unreachable", "web-03  deployed", "web-04  untouched",
		"web-02 failed at the step connection: ")
	f.unchanged(before, f.hosts[3:]...)
	f.hosts[1].comeBack(f)
	f.roll("6", atOnce...).says(0, "web-02  unchanged", f.last()+"  deployed")
	f.serve("6", f.hosts...)
}

// goesAwayBeforeItsBatch makes a host unreachable that passed the first look at all hosts: its batch ends, and the next
// one does not begin.
func (f *fleet) goesAwayBeforeItsBatch() {
	f.t.Helper()
	before := f.generations()
	f.release("7", "")
	p := f.rolling("7", append(serial("1, 2, 9"), "-e", "supervisord_canary_for=10s")...)
	f.hosts[0].tries()
	f.hosts[1].vanish()
	(<-p).says(4, "web-01  deployed", "web-02  unreachable", "web-03  deployed", "web-04  untouched")
	f.unchanged(before, append([]*host{f.hosts[1]}, f.hosts[3:]...)...)
	f.hosts[1].comeBack(f)
	f.roll("7", atOnce...).says(0)
}

func (f *fleet) masterIsKilled() {
	f.t.Helper()
	f.press()
	before := f.generations()
	f.release("8", "")
	p := f.rolling("8", append(serial("1, 4, 7"), "-e", "supervisord_canary_for=10s")...)
	f.hosts[2].tries()
	f.hosts[2].kill("supervisord", "-c /etc/supervisord/config.toml") // and not the client
	(<-p).says(2, "web-02  deployed     8", "web-03  rolled back  7", "web-06  untouched",
		"web-03 failed at the step reload: ")
	f.serve("7", f.hosts[2])
	f.serve("8", f.hosts[0], f.hosts[1], f.hosts[3], f.hosts[4])
	f.unchanged(before, f.hosts[5:]...)
	f.lossless()
}
