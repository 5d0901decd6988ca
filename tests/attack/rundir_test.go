package attack

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"example.org/supervisord/internal/lab"
)

const squatter = 12346

// as calls do on a separate thread with another user's rights.
func as(uid int, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		done <- do()
	}()
	return <-done
}

// answerAll listens at a path as the squatter and reports every reload as successful.
func answerAll(t *testing.T, path string) {
	t.Helper()
	var l net.Listener
	lab.Must(t, as(squatter, func() (err error) { l, err = net.Listen("unix", path); return err }))
	lab.Must(t, os.Chmod(path, 0o777))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"tickets":[{"program":"web","generation":2,"instance":"x"}]}
{"verdict":{"outcome":"serves","programs":[{"program":"web","generation":2,"outcome":"serves","replaced":1,` +
			`"took_ns":5000000}]}}
`))
	})}
	ended := make(chan struct{})
	go func() { server.Serve(l); close(ended) }()
	t.Cleanup(func() { server.Close(); <-ended })
}

// inTmp prepares a supervisord of an ordinary user with the default runtime_dir in a directory like /tmp, and returns
// that directory.
func inTmp(t *testing.T) (m *lab.Supervisord, runtimeDir string) {
	t.Helper()
	lab.NeedRoot(t, "there must be two ordinary users")
	m = lab.PrepareOrdinary(t)
	tmp, err := os.MkdirTemp("", "sv")
	lab.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(tmp) })
	lab.Must(t, os.Chmod(tmp, 0o777|os.ModeSticky))
	m.Env = append(m.Env, "TMPDIR="+tmp)
	m.File("config.toml", lab.Web)
	return m, filepath.Join(tmp, "supervisord-65534")
}

// planted creates the runtime directory as the squatter.
func planted(t *testing.T, dir string) {
	t.Helper()
	lab.Must(t, as(squatter, func() error { return os.Mkdir(dir, 0o777) }))
	lab.Must(t, os.Chmod(dir, 0o777))
}

func TestRuntimeDirectoryInTmpOfAnotherUserIsNotUsed(t *testing.T) {
	t.Parallel()
	m, dir := inTmp(t)
	planted(t, dir)
	m.Launch("check", "-c", m.Path("config.toml"))
	m.Await(lab.Contains("warning: "), lab.Contains("belongs to user 12346"))
	m.Ends(0)
	m.Launch("-c", m.Path("config.toml"))
	m.Await(lab.Contains(dir + " belongs to user 12346"))
	m.Ends(1)
}

func TestRuntimeDirectoryInTmpIsClosedToOthers(t *testing.T) {
	t.Parallel()
	m, dir := inTmp(t)
	m.Launch("-c", m.Path("config.toml"))
	m.Serves(1)
	info, err := os.Stat(dir)
	lab.Must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("its mode is %v", info.Mode())
	}
}

func TestReloadAnsweredByAnotherUserFails(t *testing.T) {
	t.Parallel()
	m, dir := inTmp(t)
	planted(t, dir)
	answerAll(t, dir+"/control.sock")
	for _, args := range [][]string{{"reload", "-c", m.Path("config.toml")}, {"reload", "--socket", dir + "/control.sock"},
		{"status", "-c", m.Path("config.toml")}} {
		m.Launch(args...)
		m.Await(lab.Contains("another user answers in place of supervisord"), lab.Contains("user 12346"))
		m.Ends(69)
	}
	m.As = nil // root must not use it either
	m.Launch("reload", "--socket", dir+"/control.sock")
	m.Ends(69)
}

func TestRootMayAskTheSupervisordOfAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	lab.NeedRoot(t, "there must be an ordinary user")
	m := lab.PrepareOrdinary(t)
	m.Start(lab.Web)
	m.Serves(1)
	m.CtlOK("reload")
}
