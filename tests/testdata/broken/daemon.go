package daemon

import (
	"errors"
	"os"

	"example.org/supervisord/supervisor/record"
	"example.org/supervisord/worker"
)

var errOnPurpose = errors.New("broken on purpose")

// breaks reports whether this is a new image that is to fail in this way.
func breaks(way string) bool {
	text, _ := os.ReadFile(os.Getenv("BROKEN"))
	return string(text) == way+"\n" && record.CanGoBack(os.Environ())
}

func brokenLauncher(needs worker.Needs) (*worker.Launcher, error) {
	if breaks("before") {
		return nil, errOnPurpose
	}
	return worker.NewLauncher(needs)
}

func (d *daemon) brokenRestore() error {
	if breaks("error") {
		return errOnPurpose
	}
	if breaks("panic") {
		panic(errOnPurpose)
	}
	d.supervisor.Restore(d.handover)
	if breaks("adopted") {
		return errOnPurpose
	}
	return nil
}
