package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/internal/lab/netns"
)

// podmanConf keeps podman away from the state of the machine's own podman.
const podmanConf = `
[containers]
cgroups = "disabled"
log_driver = "none"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
runtime = "crun"
tmp_dir = "DIR/tmp"
`

// podman is a command that runs podman with a storage and mounts of its own. crun wants to see cgroup2 alone.
func podman(args ...string) []string {
	dir := filepath.Join(lab.Built.Dir, "podman")
	return append([]string{"unshare", "--mount", "sh", "-c",
		`mount -t cgroup2 none /sys/fs/cgroup; exec env CONTAINERS_CONF="$0" podman "$@"`,
		dir + "/containers.conf", "--storage-driver", "vfs", "--root", dir + "/root", "--runroot", dir + "/run"}, args...)
}

func podmanRun(args ...string) (string, error) {
	argv := podman(args...)
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	return string(out), err
}

// buildImage builds the image of examples/containers once. The commands of its first stage run here: the image of Go
// would come from a network.
var buildImage = sync.OnceValue(func() error {
	dir := filepath.Join(lab.Built.Dir, "podman")
	if err := os.MkdirAll(dir+"/build/out", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(dir+"/containers.conf", []byte(strings.ReplaceAll(podmanConf, "DIR", dir)), 0o644); err != nil {
		return err
	}
	for line := range strings.Lines(lab.Text(lab.Root("examples/containers/Containerfile"))) {
		command, runs := strings.CutPrefix(line, "RUN ")
		if !runs {
			continue
		}
		c := exec.Command("sh", "-c", strings.ReplaceAll(command, "/out/", dir+"/build/out/"))
		c.Dir, c.Env = lab.Root("."), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot run what the Containerfile says: %w\n%s", err, out)
		}
	}
	if out, err := podmanRun("build", "--quiet", "--isolation", "chroot", "--build-context", "build="+dir+"/build",
		"--file", lab.Root("examples/containers/Containerfile"), "--tag", "hello", lab.Root(".")); err != nil {
		return fmt.Errorf("%w: it cannot build the image: %w\n%s", errPodman, err, out)
	}
	if out, err := podmanRun(slices.Concat([]string{"run", "--rm"}, strict, []string{"hello", "version"})...); err != nil {
		return fmt.Errorf("%w: it cannot run a container: %w\n%s", errPodman, err, out)
	}
	return nil
})

// errPodman says that podman does not work on this machine.
var errPodman = errors.New("podman does not work here")

// container is a running container of that image.
type container struct {
	*lab.Supervisord
	name   string
	master int // the PID of supervisord outside
	space  *os.File
}

// strict is how the documentation runs the image: nothing can be written but /dev/shm, no network of the host, no
// capabilities.
var strict = []string{"--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL", "--security-opt",
	"no-new-privileges", "--network", "none"}

// contain runs the image with a configuration, and waits until supervisord serves.
func contain(t *testing.T, config string, options ...string) *container {
	t.Helper()
	c := launch(t, config, options...)
	c.Serves(1)
	for _, pid := range c.Processes() {
		if strings.HasPrefix(lab.Cmdline(pid), "/bin/supervisord") {
			c.master = pid
		}
	}
	var err error
	c.space, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", c.master))
	lab.Must(t, err)
	t.Cleanup(func() { c.space.Close() })
	return c
}

func launch(t *testing.T, config string, options ...string) *container {
	t.Helper()
	lab.NeedRoot(t, "run containers with another user")
	for _, program := range []string{"podman", "crun", "unshare"} {
		lab.Need(t, program)
	}
	if err := buildImage(); errors.Is(err, errPodman) {
		t.Skip(err)
	} else {
		lab.Must(t, err)
	}
	c := &container{Supervisord: lab.Prepare(t)}
	c.name = filepath.Base(c.Dir)
	c.configure(1, config)
	c.Execute(podman(slices.Concat([]string{"run", "--rm", "--name", c.name, "--env", lab.MarkVariable,
		"--volume", c.Path("config") + ":/etc/supervisord:ro"}, strict, options, []string{"hello"})...)...)
	return c
}

// configure writes the configuration as Kubernetes writes a ConfigMap into a volume: ..data is replaced.
func (c *container) configure(version int, config string) {
	c.T.Helper()
	data := fmt.Sprintf("..v%d", version)
	c.File("config/"+data+"/config.toml", config)
	lab.Must(c.T, os.Symlink(data, c.Path("config/..data_tmp")))
	lab.Must(c.T, os.Rename(c.Path("config/..data_tmp"), c.Path("config/..data")))
	os.Symlink("..data/config.toml", c.Path("config/config.toml"))
}

// dial connects to a port in the container.
func (c *container) dial(port int) lab.Dialer {
	return netns.Dial(c.space, "127.0.0.1:"+strconv.Itoa(port))
}

// get requests a path on a connection of its own. An answer other than 200 is an error.
func (c *container) get(port int, path string) (string, error) {
	conn, err := c.dial(port)(context.Background())
	if err != nil {
		return "", err
	}
	return (&lab.Connection{Once: true, Conn: load.NewWire(conn)}).Get(path)
}

// signal sends supervisord a signal.
func (c *container) signal(sig syscall.Signal) {
	c.T.Helper()
	lab.Must(c.T, syscall.Kill(c.master, sig))
}

// term ends supervisord with TERM.
func (c *container) term() {
	c.T.Helper()
	c.signal(syscall.SIGTERM)
	c.Ends(0)
}

// exec runs supervisord in the container, as `podman exec` does.
func (c *container) exec(args ...string) string {
	c.T.Helper()
	out, err := podmanRun(append([]string{"exec", c.name, "/bin/supervisord"}, args...)...)
	if err != nil {
		c.T.Fatalf("supervisord %v: %v: %s", args, err, out)
	}
	return out
}

// The image of the documentation, run as it says, from its first request to its last.
func TestContainerImageLosesNoRequest(t *testing.T) {
	t.Parallel()
	c := contain(t, strings.Replace(containerFile(t, "config/config.toml"), "[supervisor]",
		"[supervisor]\nlog_level = \"debug\"", 1))
	c.isConfined()

	c.exec("status", "--ready")

	l := lab.PressThrough(t, c.dial(8080), 4, 4, 5*time.Millisecond)
	answers := func(generation int) {
		c.Until(fmt.Sprint("generation ", generation, " answers"), func() bool { return l.By(generation) })
	}
	answers(1)
	c.signal(syscall.SIGHUP)
	c.Await(lab.Says(lab.GenerationGone), lab.Gen(1))
	answers(2)
	c.configure(2, strings.Replace(c.Read("config/config.toml"), `"-version", "1"`, `"-version", "2"`, 1))
	c.Await(lab.Says(lab.GenerationGone), lab.Gen(2))
	answers(3)
	if body, err := c.get(8080, "/"); err != nil || !strings.Contains(body, "version=2") {
		t.Errorf("after the volume has changed it answers %q, %v", body, err)
	}
	if out := c.exec("reload", "web"); !strings.Contains(out, "generation 4 serves") {
		t.Errorf("reload says %q", out)
	}
	c.Await(lab.Says(lab.GenerationGone), lab.Gen(3))
	answers(4)
	l.Lossless(t)

	lab.Must(t, syscall.Kill(c.worker(4), syscall.SIGKILL)) // with nothing in its hands
	l = lab.PressThrough(t, c.dial(8080), 4, 4, 5*time.Millisecond)
	c.Await(lab.Says(lab.WorkerDied))
	c.AwaitN(3, lab.Says(lab.WorkerReady), lab.Gen(4))
	c.Until("no zombie is left", func() bool { return !strings.Contains(strings.Join(children(t, c.master), ""), "Z") })

	slow := make(chan string)
	go func() {
		body, err := c.get(8080, "/slow?d=7s")
		slow <- fmt.Sprint(body, err)
	}()
	c.stops(l)
	if got := <-slow; !strings.Contains(got, "hello version=2") {
		t.Errorf("the request that was under way got %q", got)
	}
}

// stops stops the container as an engine does, and ends the load as a load balancer does: when /readyz fails.
func (c *container) stops(l *lab.Traffic) {
	c.T.Helper()
	if body, err := c.get(9001, "/readyz"); err != nil {
		c.T.Errorf("/readyz is %q, %v", body, err)
	}
	stopped := make(chan string)
	go func() {
		out, err := podmanRun("stop", "--time", "30", c.name) // the grace period of the examples
		stopped <- fmt.Sprint(strings.TrimSpace(out), err)
	}()
	c.Until("/readyz fails", func() bool {
		_, err := c.get(9001, "/readyz")
		return err != nil && strings.HasPrefix(err.Error(), "503 ")
	})
	l.Lossless(c.T)
	c.Never(lab.Says(lab.Stopping))
	if got := <-stopped; got != c.name+"<nil>" {
		c.T.Errorf("podman stop: %s", got)
	}
	c.Ends(0)
	c.Await(lab.Says(lab.Ends))
	c.Never(lab.Says(lab.WorkerKilled))
}

// worker is the PID outside of a worker of a generation of web.
func (c *container) worker(generation int) int {
	c.T.Helper()
	inside := c.Await(lab.Says(lab.WorkerReady), lab.Gen(generation)).PID
	for _, pid := range c.Processes() {
		if strings.HasSuffix(lab.ProcStatus(pid)["NSpid"], "\t"+strconv.Itoa(inside)) {
			return pid
		}
	}
	c.T.Fatalf("worker %d is not there", inside)
	return 0
}

// isConfined fails unless supervisord is process 1 of an ordinary user with no privileges, who can write nowhere but
// into memory.
func (c *container) isConfined() {
	c.T.Helper()
	status := lab.ProcStatus(c.master)
	for name, want := range map[string]string{"NSpid": "\t1", "Uid": "65532\t65532\t65532\t65532",
		"CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"} {
		if got := status[name]; !strings.HasSuffix(got, want) {
			c.T.Errorf("%s of supervisord is %q, want %q", name, got, want)
		}
	}
	for line := range strings.Lines(lab.Text(fmt.Sprintf("/proc/%d/mounts", c.master))) {
		if f := strings.Fields(line); strings.HasPrefix(f[3], "rw") && f[1] != "/dev/shm" &&
			!strings.HasPrefix(f[1], "/proc") && !strings.HasPrefix(f[1], "/dev") {
			c.T.Errorf("the container can write to %s", f[1])
		}
	}
}

// accepting is a program whose worker does not say that it is ready.
const accepting = `
[supervisor]
log_level = "debug"
[program.web]
command = ["/bin/hello"]
ready.method = "accept"
listen = [{ name = "http", address = ":8080" }]
`

// noSteering is a seccomp profile that forbids SO_ATTACH_REUSEPORT_CBPF.
const noSteering = `{"defaultAction": "SCMP_ACT_ALLOW",
	"syscalls": [{"names": ["setsockopt"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1,
	"args": [{"index": 1, "value": 1, "op": "SCMP_CMP_EQ"}, {"index": 2, "value": 51, "op": "SCMP_CMP_EQ"}]}]}`

func TestContainerWithoutSteeringSharesItsListener(t *testing.T) {
	t.Parallel()
	profile := filepath.Join(t.TempDir(), "seccomp.json")
	lab.Must(t, os.WriteFile(profile, []byte(noSteering), 0o644))
	c := contain(t, accepting, "--security-opt", "seccomp="+profile)
	c.Await(lab.Contains("the generations share a listener"),
		lab.Contains("(SO_ATTACH_REUSEPORT_CBPF: operation not permitted)"))
	l := lab.PressThrough(t, c.dial(8080), 2, 2, 5*time.Millisecond)
	c.signal(syscall.SIGHUP)
	c.Gone(1)
	l.Lossless(t)
	c.term()
}

func TestContainerSeesWorkersAcceptWithHidepid(t *testing.T) {
	t.Parallel()
	seesAccept(t, "hidepid=", "mounts", "--security-opt", "proc-opts=hidepid=2")
}

// It is alone: another podman makes the storage inaccessible for the users of the namespace again.
func TestContainerSeesWorkersAcceptInAUserNamespace(t *testing.T) {
	seesAccept(t, "100000", "uid_map", "--uidmap", "0:100000:70000", "--gidmap", "0:100000:70000")
}

// seesAccept runs a container with options whose effect a file of /proc shows.
func seesAccept(t *testing.T, shown, file string, options ...string) {
	c := contain(t, accepting, options...)
	if got := lab.Text(fmt.Sprintf("/proc/%d/%s", c.master, file)); !strings.Contains(got, shown) {
		t.Fatalf("/proc/PID/%s has no %q:\n%s", file, shown, got)
	}
	c.signal(syscall.SIGHUP)
	c.Gone(1)
	c.hasNoWarning()
	c.term()
}

func (c *container) hasNoWarning() {
	c.T.Helper()
	c.Never(func(l lab.Entry) bool { return l.Level == "warn" || l.Level == "error" })
}

// With a shell, a worker can leave processes behind: some that end, which process 1 has to reap, and one that does not.
func TestContainerReapsOrphansAndLeavesNone(t *testing.T) {
	t.Parallel()
	lab.Need(t, "setsid")
	c := contain(t, strings.Replace(orphans, "for i", "sh -c 'setsid sleep 1000 & exit 0'; for i", 1),
		"--volume", "/usr:/usr:ro", "--volume", "/lib:/lib:ro", "--volume", "/lib64:/lib64:ro")
	c.Until("the worker and the orphan that stays are left, and no zombie", func() bool {
		states := strings.Join(children(t, c.master), " ")
		return len(strings.Fields(states)) == 2 && !strings.Contains(states, "Z")
	})
	c.term()
}

func TestContainerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	c := launch(t, "[program.web]\ncomand = []\n")
	c.Ends(78)
	c.Await(lab.Contains("/etc/supervisord/config.toml:2:1: program.web.comand: unknown key"))
}

// The containers of a pod have one /dev/shm, and their supervisords may have the same user and the same path of the
// configuration. Without privileges they see workers accept, too.
func TestContainersOfAPodAreControlledApart(t *testing.T) {
	t.Parallel()
	first := contain(t, accepting, "--ipc", "shareable")
	second := contain(t, accepting, "--ipc", "container:"+first.name)
	for _, c := range []*container{second, first} {
		c.exec("reload")
		c.Gone(1)
		c.hasNoWarning()
		c.term()
	}
}
