package tests

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

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

// An unchanged preforking personality of Net::Server. On TERM it drops in-flight requests. QUIT is graceful except for
// a child that has accepted a connection and not noted it yet, so each of the five children may lose one request.
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

// A worker with the listener package of Go's server-starter. It stops with http.Server.Shutdown, which drops a request
// that arrives at that moment: at most one per client.
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
