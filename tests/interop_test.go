package tests

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.org/supervisord/tests/ports"

	"golang.org/x/sys/unix"
)

// Workers that were written for others, under supervisord; and worker/graceful under others than supervisord.

// perlWith is perl, if it has a module.
func perlWith(t *testing.T, module, pkg string) string {
	t.Helper()
	perl := interpreter(t, "perl", "-e print($^X)")
	if err := exec.Command(perl, "-M"+module, "-e1").Run(); err != nil {
		t.Skipf("the package %s is not installed: perl has no %s", pkg, module)
	}
	return perl
}

// redeployedUnderLoad reloads a program three times under load with new connections, and fails if a request is lost.
func (m *master) redeployedUnderLoad() {
	m.t.Helper()
	m.redeployedWithLoss(0)
}

// redeployedWithLoss is redeployedUnderLoad for a worker that itself loses so many requests, at worst, each time it stops.
func (m *master) redeployedWithLoss(most int) {
	m.t.Helper()
	m.serves(1)
	l := pressNew(m.t, m.address(), 8, 5*time.Millisecond)
	for generation := 2; generation <= 4; generation++ {
		m.reload()
		m.serves(generation)
		m.gone(generation - 1)
	}
	y, lost := l.end(), 0
	for _, n := range y.failed {
		lost += n
	}
	if lost > 3*most || y.answered < 100 || len(y.generations) < 3 {
		m.t.Errorf("%d requests were answered by the generations %v, lost were %v", y.answered, y.generations, y.failed)
	}
	m.never(says(workerKilled))
}

// The listener is found as Server::Starter's own function gives it, by the name that start_server would give it.
func TestAPerlWorkerThatAsksServerStarterForItsPorts(t *testing.T) {
	t.Parallel()
	perl := perlWith(t, "Server::Starter", "libserver-starter-perl")
	m, at := prepare(t), ports.Reserve(t)
	m.file("worker.pl", `
use strict; use POSIX (); use Server::Starter qw(server_ports);
my $ports = server_ports();
my $fd = $ports->{$ENV{AT}} // die "there is no $ENV{AT}: " . join ' ', %$ports;
open(my $s, '+<&=', $fd) or die $!;
my $stop = 0;
POSIX::sigaction(POSIX::SIGTERM(), POSIX::SigAction->new(sub { $stop = 1 }));
my $body = "generation=$ENV{SERVER_STARTER_GENERATION}";
open(my $n, '>&=', $ENV{NOTIFY_FD}) or die $!;
syswrite($n, "\n");
my ($set, $bits) = ('', '');
vec($set, $fd, 1) = 1;
until ($stop) {
    select($bits = $set, undef, undef, 0.1) > 0 or next;
    accept(my $c, $s) or next;
    sysread($c, my $request, 4096);
    syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: " . length($body) . "\r\nConnection: close\r\n\r\n$body");
    close $c;
}
`)
	m.start(fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/worker.pl"]
environment = { AT = %q }
ready.method = "notify"
[[program.web.listen]]
address = %q
nonblock = true
`, perl, at, at))
	m.redeployedUnderLoad()
}

// A personality of Net::Server that preforks, unchanged. Its TERM drops what is in hand. QUIT is graceful but for a child that has
// accepted and not yet noted it, so that at worst each of the five loses one.
func TestAPerlServerOnNetServerSSPreFork(t *testing.T) {
	t.Parallel()
	perl := perlWith(t, "Net::Server::SS::PreFork", "libnet-server-ss-prefork-perl")
	m := prepare(t)
	m.file("server.pl", `
package Hello;
use strict; use base 'Net::Server::SS::PreFork';
sub child_init_hook { if (open(my $n, '>&=', $ENV{NOTIFY_FD})) { local $SIG{PIPE} = 'IGNORE'; syswrite($n, "\n") } }
sub process_request {
    my $body = "generation=$ENV{SERVER_STARTER_GENERATION}";
    while (<STDIN>) { last if /^\r?\n/ }
    print "HTTP/1.1 200 OK\r\nContent-Length: " . length($body) . "\r\nConnection: close\r\n\r\n$body";
}
Hello->run(min_servers => 4, max_servers => 5, min_spare_servers => 1, max_spare_servers => 4, log_level => 1);
`)
	m.start(fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/server.pl"]
ready.method = "notify"
stop.signal = "QUIT"
[[program.web.listen]]
address = %q
`, perl, ports.Reserve(t)))
	m.redeployedWithLoss(5)
}

// What the listener package of Go's server-starter gives. It stops by http.Server.Shutdown, which drops a request that comes in
// that moment: one of each client at worst.
func TestAGoWorkerOnTheListenerPackage(t *testing.T) {
	t.Parallel()
	m := prepare(t)
	m.start(fmt.Sprintf("[program.web]\ncommand = [%q]\nready.delay = \"200ms\"\n", built.starter) +
		"[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n")
	m.redeployedWithLoss(8)
}

func TestTheGracefulWorkerUnderThePerlStartServer(t *testing.T) {
	t.Parallel()
	program := need(t, "start_server")
	if text, err := os.ReadFile(program); err != nil || !strings.Contains(string(text), "perl") {
		t.Skipf("%s is not that of Perl (package libserver-starter-perl)", program)
	}
	m, at := prepare(t), ports.Reserve(t)
	m.execute(program, "--port="+at, "--interval=1", "--", built.hello)
	m.await(contains("starting new worker"))
	m.until("it answers", func() bool { _, err := get(at, "/"); return err == nil })
	l := press(t, at, 20, 10*time.Millisecond)
	for n := range 3 {
		m.signal(syscall.SIGHUP)
		m.awaitN(n+1, contains("sending TERM to old workers:"))
		m.awaitN(n+1, contains("old worker"), contains("died, status:0"))
	}
	l.lossless(t)
	if len(l.generations) != 4 {
		t.Errorf("there answered the generations %v, want four", l.generations)
	}
}

func TestTheGracefulWorkerUnderSystemdSocketActivate(t *testing.T) {
	t.Parallel()
	m, at := prepare(t), ports.Reserve(t)
	other := ports.Reserve(t)
	m.execute(need(t, "systemd-socket-activate"), "-l", other, "-l", at, "--fdname=admin:http", built.hello)
	m.await(contains("Listening on"))
	if got := ask(t, at, "/"); !strings.Contains(got, fmt.Sprintf("pid=%d ", m.pid())) { // it becomes the worker
		t.Errorf("there answers %s", got)
	}
	answer := promise(t, at, "/slow?d=500ms")
	waiting, err := net.Dial("tcp", other) // a socket that the worker does not want stays open
	must(t, err)
	defer waiting.Close()
	time.Sleep(100 * time.Millisecond) // the slow request is in the worker's hand
	m.finish()
	if got := answer(); !strings.Contains(got, "version=") {
		t.Errorf("the request in hand was answered with %s", got)
	}
}

// einhorn is the least that einhorn is to its workers: it holds a socket, tells them in its own words, waits for their acks
// on its control socket, and tells the old ones to go with USR2.
type einhorn struct {
	*master
	socket  *os.File
	address string
	control net.Listener
	acks    chan int
	asFD    bool // a worker gets a connection to the control socket (einhorn -g), not the path
}

func newEinhorn(t *testing.T) *einhorn {
	t.Helper()
	e := &einhorn{master: prepare(t), acks: make(chan int, 10)}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	e.socket = os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { e.socket.Close() })
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(t, unix.Listen(fd, 1000))
	name, err := unix.Getsockname(fd)
	must(t, err)
	e.address = fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	e.control, err = net.Listen("unix", e.path("einhorn.sock"))
	must(t, err)
	done := make(chan struct{})
	go func() { defer close(done); e.listen() }()
	t.Cleanup(func() { e.control.Close(); <-done })
	return e
}

// listen takes commands, one a line, and closes the connection after an ack.
func (e *einhorn) listen() {
	for {
		c, err := e.control.Accept()
		if err != nil {
			return
		}
		c.SetDeadline(time.Now().Add(patience))
		var command struct {
			Command string
			PID     int
		}
		line, err := bufio.NewReader(c).ReadBytes('\n')
		if err == nil && json.Unmarshal(line, &command) == nil && command.Command == "worker:ack" {
			e.acks <- command.PID
		} else {
			e.t.Errorf("on the control socket came %q (%v)", line, err)
		}
		c.Close()
	}
}

// worker starts one and waits until it has sent its ack. What it gets is in prepare_child_environment of einhorn's command.rb.
func (e *einhorn) worker() *exec.Cmd {
	e.t.Helper()
	cmd := exec.Command(built.hello)
	cmd.Env = append(e.environ(), fmt.Sprintf("EINHORN_MASTER_PID=%d", os.Getpid()), "EINHORN_FD_COUNT=1", "EINHORN_FD_0=3",
		"EINHORN_FD_FAMILY_0=AF_INET", "EINHORN_FDS=3", "EINHORN_CHILD_INDEX=0")
	cmd.ExtraFiles = []*os.File{e.socket}
	if e.asFD {
		c, err := net.Dial("unix", e.path("einhorn.sock"))
		must(e.t, err)
		f, err := c.(*net.UnixConn).File()
		must(e.t, err)
		c.Close()
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		cmd.Env = append(cmd.Env, "EINHORN_SOCK_FD=4")
	} else {
		cmd.Env = append(cmd.Env, "EINHORN_SOCK_PATH="+e.path("einhorn.sock"))
	}
	cmd.Stderr = os.Stderr
	must(e.t, cmd.Start())
	select {
	case pid := <-e.acks:
		if pid != cmd.Process.Pid {
			e.t.Errorf("the ack is from %d, want %d", pid, cmd.Process.Pid)
		}
	case <-time.After(patience):
		cmd.Process.Kill()
		cmd.Wait()
		e.t.Fatal("no ack")
	}
	return cmd
}

// stop ends a worker as einhorn does.
func (e *einhorn) stop(worker *exec.Cmd) {
	e.t.Helper()
	must(e.t, worker.Process.Signal(syscall.SIGUSR2))
	if err := worker.Wait(); err != nil {
		e.t.Errorf("a worker that was told to go by USR2: %v", err)
	}
}

func TestTheGracefulWorkerUnderEinhornsProtocol(t *testing.T) {
	t.Parallel()
	for _, asFD := range []bool{false, true} {
		e := newEinhorn(t)
		e.asFD = asFD
		serving := e.worker()
		l := press(t, e.address, 20, 10*time.Millisecond)
		for range 5 {
			time.Sleep(100 * time.Millisecond) // the load goes on; there is no event to wait for
			next := e.worker()
			e.stop(serving)
			serving = next
		}
		l.lossless(t)
		e.stop(serving)
		if left := e.processes(); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	}
}

// Nothing is acknowledged to an einhorn that is not the parent, and its sockets are not taken: the variables came down from further up.
func TestTheGracefulWorkerBelowAWorkerOfEinhorn(t *testing.T) {
	t.Parallel()
	e := newEinhorn(t)
	at := ports.Reserve(t)
	cmd := exec.Command(built.hello, "-address", at)
	cmd.Env = append(e.environ(), "EINHORN_MASTER_PID=1", "EINHORN_FD_COUNT=1", "EINHORN_FD_0=3", "EINHORN_SOCK_PATH="+e.path("einhorn.sock"))
	cmd.ExtraFiles = []*os.File{e.socket}
	must(t, cmd.Start())
	e.until("it serves its own address", func() bool { _, err := get(at, "/"); return err == nil })
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if len(e.acks) > 0 {
		t.Error("it sent an ack")
	}
}

// The dialect's both ends: supervisord tells as einhorn does, and nothing else.
func TestTheGracefulWorkerInTheDialectOfEinhorn(t *testing.T) {
	t.Parallel()
	m := start(t, strings.Replace(hello, "workers = 2", "workers = 2\ndialect = \"einhorn\"\nstop.signal = \"USR2\"", 1))
	m.serves(1)
	m.press(m.address(), 20, 200*time.Millisecond, 8)
}

// The einhorn dialect as a Ruby worker reads it that was written for einhorn: its ack is all that says that it is ready.
func TestARubyWorkerWrittenForEinhorn(t *testing.T) {
	t.Parallel()
	ruby := interpreter(t, "ruby", "-e print(RbConfig.ruby)")
	m := prepare(t)
	m.file("worker.rb", `
require 'socket'
raise 'not a worker' unless ENV['EINHORN_MASTER_PID'].to_i == Process.ppid
stop = false
Signal.trap('USR2') { stop = true }
server = TCPServer.for_fd(ENV.fetch('EINHORN_FD_0').to_i)
body = "generation=#{ENV['SUPERVISORD_GENERATION']}"
UNIXSocket.open(ENV.fetch('EINHORN_SOCK_PATH')) do |control|
  control.write(%({"command":"worker:ack","pid":#{$$}}\n))
  control.read # the master closes the connection
end
until stop
  next unless IO.select([server], nil, nil, 0.1)
  begin
    client = server.accept_nonblock
  rescue IO::WaitReadable
    next
  end
  client.gets("\r\n\r\n")
  client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n#{body}")
  client.close
end
`)
	m.start(fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/worker.rb"]
dialect = ["einhorn"]
ready.method = "notify"
stop.signal = "USR2"
[[program.web.listen]]
address = "127.0.0.1:0"
`, ruby))
	m.redeployedUnderLoad()
}
