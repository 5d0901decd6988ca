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

	"golang.org/x/sys/unix"

	"example.org/supervisord/internal/lab"
)

// Workers written for other supervisors, under supervisord; and worker/graceful under other supervisors.

// perlWith returns the path of perl, or skips the test if perl lacks the module.
func perlWith(t *testing.T, module, pkg string) string {
	t.Helper()
	perl := interpreter(t, "perl", "-e print($^X)")
	if err := exec.Command(perl, "-M"+module, "-e1").Run(); err != nil {
		t.Skipf("the package %s is not installed: perl has no %s", pkg, module)
	}
	return perl
}

// The worker finds its listener with Server::Starter's own function, by the name that start_server would use.
func TestPerlWorkerThatAsksServerStarterForItsPorts(t *testing.T) {
	t.Parallel()
	perl := perlWith(t, "Server::Starter", "libserver-starter-perl")
	m, at := lab.Prepare(t), lab.Reserve(t)
	m.File("worker.pl", `
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
	m.Start(fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/worker.pl"]
environment = { AT = %q }
ready.method = "notify"
[[program.web.listen]]
address = %q
nonblock = true
`, perl, at, at))
	m.RedeployUnderLoad()
}

// An unchanged preforking personality of Net::Server. On TERM it drops in-flight requests. QUIT is graceful except for a child that
// has accepted a connection and not noted it yet, so each of the five children may lose one request.
func TestPerlServerOnNetServerSSPreFork(t *testing.T) {
	t.Parallel()
	perl := perlWith(t, "Net::Server::SS::PreFork", "libnet-server-ss-prefork-perl")
	m := lab.Prepare(t)
	m.File("server.pl", `
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
	m.Start(fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/server.pl"]
ready.method = "notify"
stop.signal = "QUIT"
[[program.web.listen]]
address = %q
`, perl, lab.Reserve(t)))
	m.RedeployWithLoss(5)
}

// A worker with the listener package of Go's server-starter. It stops with http.Server.Shutdown, which drops a request that
// arrives at that moment: at most one per client.
func TestGoWorkerOnTheListenerPackage(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start(fmt.Sprintf("[program.web]\ncommand = [%q]\nready.delay = \"200ms\"\n", lab.Built.Starter) +
		"[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n")
	m.RedeployWithLoss(8)
}

func TestGracefulWorkerUnderThePerlStartServer(t *testing.T) {
	t.Parallel()
	program := lab.Need(t, "start_server")
	if text, err := os.ReadFile(program); err != nil || !strings.Contains(string(text), "perl") {
		t.Skipf("%s is not the one in Perl (package libserver-starter-perl)", program)
	}
	m, at := lab.Prepare(t), lab.Reserve(t)
	m.Execute(program, "--port="+at, "--interval=1", "--", lab.Built.Hello)
	m.Await(lab.Contains("starting new worker"))
	m.Until("it answers", func() bool { _, err := lab.Get(at, "/"); return err == nil })
	l := lab.Press(t, at, 20, 10*time.Millisecond)
	for n := range 3 {
		m.Signal(syscall.SIGHUP)
		m.AwaitN(n+1, lab.Contains("sending TERM to old workers:"))
		m.AwaitN(n+1, lab.Contains("old worker"), lab.Contains("died, status:0"))
	}
	if n := l.Lossless(t); n != 4 {
		t.Errorf("%d generations answered, want 4", n)
	}
}

func TestGracefulWorkerUnderSystemdSocketActivate(t *testing.T) {
	t.Parallel()
	m, at := lab.Prepare(t), lab.Reserve(t)
	other := lab.Reserve(t)
	m.Execute(lab.Need(t, "systemd-socket-activate"), "-l", other, "-l", at, "--fdname=admin:http", lab.Built.Hello)
	m.Await(lab.Contains("Listening on"))
	if got := lab.Ask(t, at, "/"); !strings.Contains(got, fmt.Sprintf("pid=%d ", m.PID())) { // it becomes the worker
		t.Errorf("the answer is %s", got)
	}
	sockets := func() (n int) {
		for _, to := range lab.Descriptors(t, m.PID()) {
			if strings.HasPrefix(to, "socket:") {
				n++
			}
		}
		return n
	}
	m.Until("the worker has closed the connection that was answered", func() bool { return sockets() == 2 })
	answer := lab.Promise(t, at, "/slow?d=500ms")
	m.Until("the worker has accepted the slow request", func() bool { return sockets() == 3 })
	waiting, err := net.Dial("tcp", other) // a socket that the worker does not use stays open
	lab.Must(t, err)
	defer waiting.Close()
	m.Finish()
	if got := answer(); !strings.Contains(got, "version=") {
		t.Errorf("the in-flight request was answered with %s", got)
	}
}

// einhorn is a minimal einhorn: it holds a socket, sets its variables for the workers, waits for their acks on its control
// socket, and stops the old ones with USR2.
type einhorn struct {
	*lab.Supervisord
	socket  *os.File
	address string
	control net.Listener
	acks    chan int
	asFD    bool // a worker gets a connection to the control socket (einhorn -g), not the path
}

func newEinhorn(t *testing.T) *einhorn {
	t.Helper()
	e := &einhorn{Supervisord: lab.Prepare(t), acks: make(chan int, 10)}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	lab.Must(t, err)
	e.socket = os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { e.socket.Close() })
	lab.Must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	lab.Must(t, unix.Listen(fd, 1000))
	name, err := unix.Getsockname(fd)
	lab.Must(t, err)
	e.address = fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	e.control, err = net.Listen("unix", e.Path("einhorn.sock"))
	lab.Must(t, err)
	done := make(chan struct{})
	go func() { defer close(done); e.listen() }()
	t.Cleanup(func() { e.control.Close(); <-done })
	return e
}

// listen reads commands, one per line, and closes the connection after an ack.
func (e *einhorn) listen() {
	for {
		c, err := e.control.Accept()
		if err != nil {
			return
		}
		c.SetDeadline(time.Now().Add(lab.Patience))
		var command struct {
			Command string
			PID     int
		}
		line, err := bufio.NewReader(c).ReadBytes('\n')
		if err == nil && json.Unmarshal(line, &command) == nil && command.Command == "worker:ack" {
			e.acks <- command.PID
		} else {
			e.T.Errorf("the control socket received %q (%v)", line, err)
		}
		c.Close()
	}
}

// worker starts a worker and waits for its ack. Its environment follows prepare_child_environment in einhorn's command.rb.
func (e *einhorn) worker() *exec.Cmd {
	e.T.Helper()
	cmd := exec.Command(lab.Built.Hello)
	cmd.Env = append(e.Environ(), fmt.Sprintf("EINHORN_MASTER_PID=%d", os.Getpid()), "EINHORN_FD_COUNT=1", "EINHORN_FD_0=3",
		"EINHORN_FD_FAMILY_0=AF_INET", "EINHORN_FDS=3", "EINHORN_CHILD_INDEX=0")
	cmd.ExtraFiles = []*os.File{e.socket}
	if e.asFD {
		c, err := net.Dial("unix", e.Path("einhorn.sock"))
		lab.Must(e.T, err)
		f, err := c.(*net.UnixConn).File()
		lab.Must(e.T, err)
		c.Close()
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		cmd.Env = append(cmd.Env, "EINHORN_SOCK_FD=4")
	} else {
		cmd.Env = append(cmd.Env, "EINHORN_SOCK_PATH="+e.Path("einhorn.sock"))
	}
	cmd.Stderr = os.Stderr
	lab.Must(e.T, cmd.Start())
	select {
	case pid := <-e.acks:
		if pid != cmd.Process.Pid {
			e.T.Errorf("the ack is from %d, want %d", pid, cmd.Process.Pid)
		}
	case <-time.After(lab.Patience):
		cmd.Process.Kill()
		cmd.Wait()
		e.T.Fatal("no ack")
	}
	return cmd
}

// stop stops a worker as einhorn does.
func (e *einhorn) stop(worker *exec.Cmd) {
	e.T.Helper()
	lab.Must(e.T, worker.Process.Signal(syscall.SIGUSR2))
	if err := worker.Wait(); err != nil {
		e.T.Errorf("a worker stopped with USR2: %v", err)
	}
}

func TestGracefulWorkerUnderEinhornsProtocol(t *testing.T) {
	t.Parallel()
	for _, asFD := range []bool{false, true} {
		e := newEinhorn(t)
		e.asFD = asFD
		serving := e.worker()
		l := lab.Press(t, e.address, 20, 10*time.Millisecond)
		for range 5 {
			time.Sleep(100 * time.Millisecond) // the load continues; no event to wait for
			next := e.worker()
			e.stop(serving)
			serving = next
		}
		l.Lossless(t)
		e.stop(serving)
		if left := e.Processes(); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	}
}

// If einhorn is not the parent, the variables are inherited from further up: the worker sends no ack and does not use the sockets.
func TestGracefulWorkerBelowAWorkerOfEinhorn(t *testing.T) {
	t.Parallel()
	e := newEinhorn(t)
	at := lab.Reserve(t)
	cmd := exec.Command(lab.Built.Hello, "-address", at)
	cmd.Env = append(e.Environ(), "EINHORN_MASTER_PID=1", "EINHORN_FD_COUNT=1", "EINHORN_FD_0=3", "EINHORN_SOCK_PATH="+e.Path("einhorn.sock"))
	cmd.ExtraFiles = []*os.File{e.socket}
	lab.Must(t, cmd.Start())
	e.Until("it serves its own address", func() bool { _, err := lab.Get(at, "/"); return err == nil })
	lab.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if len(e.acks) > 0 {
		t.Error("the worker sent an ack")
	}
}

// Both ends of the dialect: supervisord sets only the variables of einhorn, and worker/graceful reads them.
func TestGracefulWorkerInTheDialectOfEinhorn(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, strings.Replace(lab.Hello, "workers = 2", "workers = 2\ndialect = \"einhorn\"\nstop.signal = \"USR2\"", 1))
	m.Serves(1)
	m.ReloadUnderLoad(m.Address(), 20, 200*time.Millisecond, 8)
}

// A Ruby worker written for einhorn: its ack is its only sign of readiness.
func TestRubyWorkerWrittenForEinhorn(t *testing.T) {
	t.Parallel()
	ruby := interpreter(t, "ruby", "-e print(RbConfig.ruby)")
	m := lab.Prepare(t)
	m.File("worker.rb", `
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
	m.Start(fmt.Sprintf(`
[program.web]
command = [%q, "{dir}/worker.rb"]
dialect = ["einhorn"]
ready.method = "notify"
stop.signal = "USR2"
[[program.web.listen]]
address = "127.0.0.1:0"
`, ruby))
	m.RedeployUnderLoad()
}
