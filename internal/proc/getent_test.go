package proc

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"example.org/supervisord/internal/lab/must"
)

// directoryService puts a getent before the machine's that knows the user alice (4242) and the group staff2 (4243).
func directoryService(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
[ -z "$NOTIFY_SOCKET" ] || exit 1
case "$*" in
"passwd alice" | "passwd 4242") echo "alice:*:4242:4240:Alice:/home/alice:/bin/sh" ;;
"group staff2") echo "staff2:*:4243:alice" ;;
"initgroups alice") echo "alice                 4243 4244 4243" ;;
*) exit 2 ;;
esac
`
	must.Do(t, os.WriteFile(filepath.Join(dir, "getent"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("NOTIFY_SOCKET", "/run/none")
}

func TestAccountsOfADirectoryServiceAreFoundByGetent(t *testing.T) {
	directoryService(t)
	for _, name := range []string{"alice", "4242"} {
		a, err := LookupAccount(name)
		if err != nil || a.Name != "alice" || a.Home != "/home/alice" || a.UID != 4242 || a.GID != 4240 ||
			!slices.Equal(a.Groups, []uint32{4240, 4243, 4244}) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if uid, err := UID("alice"); uid != 4242 || err != nil || UserName(4242) != "alice" {
		t.Errorf("UID %d, %v; name %q", uid, err, UserName(4242))
	}
	if gid, err := GID("staff2"); gid != 4243 || err != nil {
		t.Errorf("GID %d, %v", gid, err)
	}
	for _, name := range []string{"bob", "-s", "4245"} {
		if _, err := LookupAccount(name); !Unknown(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAccountsAreFoundWithoutGetent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if a, err := LookupAccount("root"); err != nil || !slices.Contains(a.Groups, 0) {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := GID("nosuchname"); !Unknown(err) {
		t.Error(err)
	}
}
