package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/internal/lab/load"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

type namesSize struct {
	rate, redeploys int           // requests a second; redeploys of each case
	slow            time.Duration // what the resolver takes
}

// slowName is a name that only the resolver of the sealed-off process knows.
const slowName = "slow.test"

// slowNames redeploys two programs at once, of which one waits for a resolver, and watches the other. A process with a
// network and a mount table of its own does this. There its resolver can have the port that all programs ask (53), and
// /etc/resolv.conf can name it, while the machine stays untouched.
func (r *rig) slowNames(ctx context.Context, c *chapter) error {
	cmd := exec.Command("/proc/self/exe", sealedRole, r.name, r.programs)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	var out bytes.Buffer
	// the C library, which need not be there, would ask the same resolver
	cmd.Env = append(os.Environ(), "GODEBUG=netdns=go")
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		c.say("Left out, slow names: it needs a network and a mount table of its own, and this machine permits none to "+
			"this user (%v).", err)
		return nil
	}
	defer context.AfterFunc(ctx, func() { cmd.Process.Signal(unix.SIGTERM) })() //nolint:errcheck // it may have ended
	err := cmd.Wait()
	c.text.Write(out.Bytes())
	return err
}

// runSealed is that process. It prints its part of the chapter.
func runSealed() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	r := &rig{programs: os.Args[3]}
	for _, size := range []sizes{full, quickly, miniature} {
		if size.name == os.Args[2] {
			r.sizes = size
		}
	}
	if err := sealOff(); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	resolver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53})
	if err != nil {
		return err
	}
	defer resolver.Close()
	running.Go(func() { resolve(resolver, r.names.slow) })
	agent, err := net.Listen("tcp4", agentAddress)
	if err != nil {
		return err
	}
	defer agent.Close()
	running.Go(func() {
		http.Serve(agent, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) //nolint:errcheck // it ends so
	})
	c := &chapter{}
	err = r.besideSlowNames(ctx, c)
	fmt.Print(c.text.String())
	return err
}

// sealOff brings the loopback up and names the resolver.
func sealOff() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("cannot bring the loopback up: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return err
	}
	conf, err := os.CreateTemp("", "resolv.conf")
	if err != nil {
		return err
	}
	defer os.Remove(conf.Name()) // the mount keeps it
	defer conf.Close()
	if _, err := conf.WriteString("nameserver 127.0.0.1\noptions timeout:10 attempts:1\n"); err != nil {
		return err
	}
	return unix.Mount(conf.Name(), target, "", unix.MS_BIND, "")
}

// resolve answers every question for an IPv4 address with 127.0.0.1, after a while, until the socket is closed.
func resolve(socket *net.UDPConn, slow time.Duration) {
	buf := make([]byte, 1500)
	for {
		n, from, err := socket.ReadFromUDP(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil {
			continue
		}
		m.Response, m.Additionals = true, nil
		for _, q := range m.Questions {
			if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
					Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				})
			}
		}
		if answer, err := m.Pack(); err == nil {
			time.AfterFunc(slow, func() { socket.WriteToUDP(answer, from) }) //nolint:errcheck // the client asks again
		}
	}
}

// agentAddress is where the process itself answers probes. At a shared socket another generation might answer.
const agentAddress = "127.0.0.1:8002"

// neighbour is what runs beside the program that is measured.
type neighbour struct {
	name     string
	programs []kit.ProgramTable // none, or one called "slow"
}

func (r *rig) neighbours() []neighbour {
	slow := func(ready, address string, command []string) []kit.ProgramTable {
		p := web("http", address+":8001", "1", command...)
		p.Name, p.Ready = "slow", ready
		return []kit.ProgramTable{p}
	}
	probe := `method = "http", url = "http://` + slowName + `:8002/{pid}"`
	return []neighbour{
		{"nothing", nil},
		{"a worker that looks up a slow name when it starts, and for each request",
			slow("", "127.0.0.1", r.command("experiments", namesRole))},
		{"`ready.method = \"http\"` with a slow name in its url", slow(probe, "127.0.0.1", r.command("hello"))},
		{"a listener whose address is a slow name", slow("", slowName, r.command("hello"))},
	}
}

// besideSlowNames measures a program alone, and beside programs that wait for the resolver.
func (r *rig) besideSlowNames(ctx context.Context, c *chapter) error {
	var rows [][]string
	var waited []string
	lost := 0
	for _, beside := range r.neighbours() {
		all, own, other, err := r.measureBeside(ctx, beside.programs)
		if err != nil {
			return fmt.Errorf("%s: %w", beside.name, err)
		}
		of := "–"
		if len(own) > 0 {
			of = load.Short(own.Quantile(0.5))
		}
		rows = append(rows, []string{beside.name, load.Short(other.Quantile(0.5)), load.Short(other.Quantile(1)), of,
			count(len(all)), count(failed(all)), load.Short(all.Latencies().Quantile(0.99)), load.Short(
				all.Latencies().Quantile(1))})
		lost += failed(all)
		if other.Quantile(1) >= r.names.slow {
			waited = append(waited, beside.name)
		}
	}
	c.say("Slow names: a resolver takes %s for each answer, in a network of its own with supervisord and the workers. "+
		"One HUP redeploys two programs. "+
		"How long does the program without names take, and how are its clients served meanwhile?", r.names.slow)
	c.table([]string{"beside it", "HUP to new generation (p50)", "longest", "of the slow one (p50)", "requests", "failed",
		"p99", "max"}, rows)
	meaning := "No program waits because another one waits for the resolver, be it in a worker, in a probe, or for a " +
		"listener's address."
	if len(waited) > 0 {
		meaning = "A worker or a probe that waits for the resolver delays only itself. The redeploy of the other program " +
			"did wait for a name that is not its own, in this case: " +
			strings.Join(waited, "; ") + ". Its old generation serves meanwhile."
	}
	c.say("**It means:** %s %s", verdict(lost, "the other program"), meaning)
	return nil
}

// measureBeside redeploys everything, with a load on the program "other". It returns its requests, and from HUP to the
// new generation of the program "slow" and of "other".
func (r *rig) measureBeside(ctx context.Context, programs []kit.ProgramTable) (all load.Attempts, own, other load.Times,
	err error) {
	table := web("http", "127.0.0.1:8000", "1", r.command("hello")...)
	table.Name = "other"
	s, err := r.supervise(ctx, append(programs, table)...)
	if err != nil {
		return nil, nil, nil, err
	}
	defer s.Abandon()
	t := steady("127.0.0.1:8000", r.names.rate)
	defer t.end()
	if len(programs) > 0 {
		slow := sender("127.0.0.1:8001", get("/"), 0)
		t.starting.Go(func() { slow.Send(time.Now()) }) // in the path of a request, too, a name may be slow
	}
	took := map[string][]time.Duration{}
	for range r.names.redeploys {
		n, began, missing := s.Len(), time.Now(), 1+len(programs)
		if err := s.HUP(); err != nil {
			return nil, nil, nil, err
		}
		_, err := s.Await(ctx, n, func(u *supervisor.Update) bool {
			if u.Kind == program.GenerationServes {
				took[u.Program] = append(took[u.Program], u.Time.Sub(began))
				missing--
			}
			return missing == 0
		})
		if err != nil {
			return nil, nil, nil, err
		}
		if err := kit.Pause(ctx, 500*time.Millisecond); err != nil {
			return nil, nil, nil, err
		}
	}
	return t.end(), load.Sort(slices.Values(took["slow"])), load.Sort(slices.Values(took["other"])), nil
}
