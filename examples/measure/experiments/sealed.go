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
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"example.org/supervisord/examples/measure/kit"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// slowName is a name that only the resolver of the sealed-off process knows.
const slowName = "slow.test"

// sealed is the order for a process with a network and a mount table of its own. There its resolver can have the port that all
// programs ask (53), and /etc/resolv.conf can name it, while the machine stays untouched.
type sealed struct {
	Bin  binaries
	Size namesSize
	Dir  string
}

// namesCase is what one configuration came to.
type namesCase struct {
	Name             string
	Other, Slow      []time.Duration // HUP to the new generation serves: of the program beside, and of the one with the slow name
	Requests, Failed int             // of the program beside
	P99, Max         time.Duration
}

// run starts the process and returns its cases. refused says that this machine permits no such process.
func (o sealed) run(ctx context.Context) (cases []namesCase, refused, err error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(o.Bin.Self, sealedRole, string(order))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	cmd.Env = append(os.Environ(), "GODEBUG=netdns=go") // the C library, which need not be there, would ask the same resolver
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

// runSealed is the process itself. It prints its cases.
func runSealed() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var o sealed
	if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
		return fmt.Errorf("the order: %w", err)
	}
	if err := sealOff(o.Dir); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	resolver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53})
	if err != nil {
		return err
	}
	defer resolver.Close()
	running.Go(func() { resolve(resolver, o.Size.Slow) })
	agent, err := net.Listen("tcp4", agentAddress)
	if err != nil {
		return err
	}
	defer agent.Close()
	running.Go(func() {
		http.Serve(agent, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) //nolint:errcheck // until it is closed
	})
	var cases []namesCase
	for _, c := range o.neighbours() {
		found, err := o.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		cases = append(cases, *found)
	}
	return json.NewEncoder(os.Stdout).Encode(cases)
}

// sealOff brings the loopback up and names the resolver.
func sealOff(dir string) error {
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
			time.AfterFunc(slow, func() { socket.WriteToUDP(answer, from) }) //nolint:errcheck // a client without an answer asks again
		}
	}
}

// agentAddress is where the process itself answers probes. At a shared socket another generation might answer.
const agentAddress = "127.0.0.1:8002"

// neighbour is what runs beside the program that is measured.
type neighbour struct {
	name     string
	programs []kit.ProgramTable // none or one, "slow"
}

func (o sealed) neighbours() []neighbour {
	slow := func(ready, address string, command ...string) []kit.ProgramTable {
		p := web("http", address+":8001", "1", command...)
		p.Name, p.Ready = "slow", ready
		return []kit.ProgramTable{p}
	}
	return []neighbour{
		{"nothing", nil},
		{"a worker that looks a slow name up as it boots, and for each request", slow("", "127.0.0.1", o.Bin.Self, namesRole)},
		{"`ready.method = \"http\"` with a slow name in its url",
			slow(`method = "http", url = "http://`+slowName+`:8002/{pid}"`, "127.0.0.1", o.Bin.Hello)},
		{"a listener whose address is a slow name", slow("", slowName, o.Bin.Hello)},
	}
}

// measure redeploys everything, with a load on the program "other", and watches when each program has its new generation.
func (o sealed) measure(ctx context.Context, beside neighbour) (*namesCase, error) {
	other := web("http", "127.0.0.1:8000", "1", o.Bin.Hello)
	other.Name = "other"
	s, err := kit.Serve(ctx, o.Bin.Supervisord, append(beside.programs, other)...)
	if err != nil {
		return nil, err
	}
	defer s.Abandon()
	t := steady("127.0.0.1:8000", o.Size.Rate)
	defer t.end()
	if len(beside.programs) > 0 {
		slow := sender("127.0.0.1:8001", get("/"), 0)
		t.starting.Go(func() { slow.Send(time.Now()) }) // in the path of a request, too, a name may be slow
	}
	c := &namesCase{Name: beside.name}
	for range o.Size.Redeploys {
		n, began := s.Len(), time.Now()
		if err := s.HUP(); err != nil {
			return nil, err
		}
		served := map[string]time.Duration{}
		_, err := s.Await(ctx, n, func(u *supervisor.Update) bool {
			if u.Kind == program.GenerationServes {
				served[u.Program] = u.Time.Sub(began)
			}
			return len(served) == 1+len(beside.programs)
		})
		if err != nil {
			return nil, err
		}
		c.Other = append(c.Other, served["other"])
		if took, ok := served["slow"]; ok {
			c.Slow = append(c.Slow, took)
		}
		if err := kit.Pause(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
	all := t.end()
	latencies := all.Latencies()
	c.Requests, c.Failed, c.P99, c.Max = len(all), failed(all), latencies.Quantile(0.99), latencies.Quantile(1)
	return c, nil
}
