package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// slowName is a name that only the lab's resolver knows.
const slowName = "slow.test"

// lab is a process with a network and a mount table of its own: there its resolver can have the port that all programs ask
// (53), and /etc/resolv.conf can name it, while nothing of the machine is touched.
type lab struct {
	Bin  binaries
	Dir  string
	Rate int
	Slow time.Duration // what the resolver takes
	N    int           // redeploys in each case
}

// labCase is what the lab found out about one configuration.
type labCase struct {
	Name        string
	Other, Slow []time.Duration // HUP to the new generation serves: of the program beside, and of the one with the slow name
	Requests    int             // to the program beside
	Failed      int
	P99, Max    time.Duration
}

// run starts the lab and returns what it found; refused tells that this machine permits no such process.
func (l lab) run(ctx context.Context) (cases []labCase, refused error, err error) {
	cmd := exec.Command(l.Bin.Self, labRole)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	order, err := json.Marshal(l)
	if err != nil {
		return nil, nil, err
	}
	cmd.Env = append(os.Environ(), "GODEBUG=netdns=go", "SUPERVISORD_LAB="+string(order)) // the C library asks the same resolver; but it need not be there
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err, nil
	}
	defer context.AfterFunc(ctx, func() { cmd.Process.Signal(unix.SIGTERM) })() //nolint:errcheck // it may have ended
	err = json.NewDecoder(out).Decode(&cases)
	if ended := cmd.Wait(); ended != nil {
		err = ended
	}
	return cases, nil, err
}

// runLab is the lab's own side.
func runLab() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var l lab
	if err := json.Unmarshal([]byte(os.Getenv("SUPERVISORD_LAB")), &l); err != nil {
		return fmt.Errorf("the lab's order: %w", err)
	}
	if err := sealOff(l.Dir); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	r, err := startResolver("127.0.0.1:53", l.Slow)
	if err != nil {
		return err
	}
	defer r.close()
	stopAgent, err := startAgent()
	if err != nil {
		return err
	}
	defer stopAgent()
	var found []labCase
	for _, c := range l.cases() {
		one, err := l.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("lab: %s: %w", c.name, err)
		}
		found = append(found, *one)
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// agentPort is where the lab itself answers for workers: a probe must not ask at their shared socket.
const agentPort = "8002"

func startAgent() (stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:"+agentPort)
	if err != nil {
		return nil, err
	}
	agent := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	var serving sync.WaitGroup
	serving.Go(func() { agent.Serve(ln) }) //nolint:errcheck // it ends when stop closes it
	return func() {
		agent.Close() //nolint:errcheck // nothing is under way any more
		serving.Wait()
	}, nil
}

// sealOff brings the loopback up and names the lab's resolver.
func sealOff(dir string) error {
	if err := raiseLoopback(); err != nil {
		return fmt.Errorf("cannot bring the loopback up: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make mounts private: %w", err)
	}
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.1\noptions timeout:10 attempts:1\n"), 0o644); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return err
	}
	return unix.Mount(conf, target, "", unix.MS_BIND, "")
}

func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// setup is one configuration of the lab: "other" and what is beside it.
type setup struct {
	name   string
	beside []program
}

func (l lab) cases() []setup {
	probed := program{name: "slow", command: []string{l.Bin.Hello}, workers: "1", listen: []listen{{"http", "127.0.0.1:8001"}},
		ready: fmt.Sprintf("method = \"http\", url = \"http://%s:%s/{pid}\"", slowName, agentPort)}
	return []setup{
		{"nothing", nil},
		{"a worker that looks a slow name up as it boots, and for each request",
			[]program{{name: "slow", command: []string{l.Bin.Self, namesRole}, workers: "1", listen: []listen{{"http", "127.0.0.1:8001"}}}}},
		{"`ready.method = \"http\"` with a slow name in its url", []program{probed}},
		{"a listener whose address is a slow name",
			[]program{{name: "slow", command: []string{l.Bin.Hello}, workers: "1", listen: []listen{{"http", slowName + ":8001"}}}}},
	}
}

// measure redeploys everything, with a load on "other", and looks when each program has its new generation.
func (l lab) measure(ctx context.Context, s setup) (*labCase, error) {
	other := program{name: "other", command: []string{l.Bin.Hello}, workers: "1", listen: []listen{{"http", "127.0.0.1:8000"}}}
	m, err := startMaster(ctx, l.Bin.Supervisord, l.Dir, append([]program{other}, s.beside...)...)
	if err != nil {
		return nil, err
	}
	defer m.stop()
	load := steady("http://127.0.0.1:8000/", l.Rate)
	defer load.end()
	if len(s.beside) > 0 {
		load.running.Go(l.bother)
	}
	c := &labCase{Name: s.name}
	for range l.N {
		if err := c.redeploy(ctx, m, s); err != nil {
			return nil, err
		}
	}
	load.end()
	all := samples(load.samples)
	latencies := all.latencies()
	c.Requests, c.Failed, c.P99, c.Max = len(all), all.failed(), latencies.at(0.99), latencies.at(1)
	return c, nil
}

// bother sends a request to the program beside: in its path, too, a name may be slow.
func (l lab) bother() {
	c := &caller{}
	c.ask(context.Background(), "GET", "http://127.0.0.1:8001/", "") //nolint:errcheck // that it waits is its purpose
}

func (c *labCase) redeploy(ctx context.Context, m *master, s setup) error {
	n, at := m.journal.length(), time.Now()
	if err := m.hup(); err != nil {
		return err
	}
	for _, program := range []string{"other", "slow"}[:1+len(s.beside)] {
		l, err := m.journal.await(ctx, n, serves, func(l line) bool { return l.Message == serves && l.Program == program })
		if err != nil {
			return err
		}
		if program == "other" {
			c.Other = append(c.Other, l.at.Sub(at))
		} else {
			c.Slow = append(c.Slow, l.at.Sub(at))
		}
	}
	slices.Sort(c.Other)
	slices.Sort(c.Slow)
	return pause(ctx, 500*time.Millisecond)
}

// resolver answers every question for an IPv4 address with 127.0.0.1, after a while.
type resolver struct {
	conn    *net.UDPConn
	slow    time.Duration
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func startResolver(address string, slow time.Duration) (*resolver, error) {
	at, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", at)
	if err != nil {
		return nil, err
	}
	r := &resolver{conn: conn, slow: slow}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.running.Go(r.serve)
	return r, nil
}

func (r *resolver) close() {
	r.cancel()
	r.conn.Close() //nolint:errcheck // nothing is left to lose
	r.running.Wait()
}

func (r *resolver) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := r.conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		answer, err := answerTo(buf[:n])
		if err != nil {
			continue
		}
		r.running.Go(func() {
			if pause(r.ctx, r.slow) == nil {
				r.conn.WriteToUDP(answer, from) //nolint:errcheck // who does not get it asks again
			}
		})
	}
}

func answerTo(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	m.Response, m.Additionals = true, nil
	for _, q := range m.Questions {
		if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			})
		}
	}
	return m.Pack()
}
