package tests

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// Workers in other languages are reloaded under a light load. A worker without a way to drain must lose no request
// either, if it answers every accepted request before it exits. perlChildren starts two children that accept from $s
// until TERM; perlReaps waits for them.
const (
	perlChildren = `my @kids;
for (1..2) {
    my $pid = fork() // die;
    if (!$pid) {
        my $stop = 0;
        POSIX::sigaction(POSIX::SIGTERM(), POSIX::SigAction->new(sub { $stop = 1 }));   # no SA_RESTART: accept gives up
        my $body = "generation=$ENV{SERVER_STARTER_GENERATION}";
        until ($stop) {
            accept(my $c, $s) or next;
            sysread($c, my $request, 4096);
            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: " . length($body) . "\r\nConnection: close\r\n\r\n$body");
            close $c;
        }
        POSIX::_exit(0);
    }
    push @kids, $pid;
}
$SIG{TERM} = sub { kill TERM => @kids };
`
	perlReaps = `for my $k (@kids) { while (waitpid($k, 0) != $k) { kill TERM => @kids; last if $!{ECHILD} } }`
)

func inLanguage(t *testing.T, command string, ready string) {
	t.Helper()
	m := lab.Prepare(t)
	m.Start("[program.web]\ncommand = " + command + "\nworkers = 2\n" + ready +
		"\n[[program.web.listen]]\nname = \"http\"\naddress = \"127.0.0.1:0\"\n")
	m.Serves(1)
	l := lab.PressNew(t, m.Address(), 8, 5*time.Millisecond)
	for generation := 2; generation <= 4; generation++ {
		m.Reload()
		m.Serves(generation)
		m.Gone(generation - 1)
		m.Until("the new generation answers", func() bool {
			return strings.Contains(lab.Ask(t, m.Address(), "/"), "generation="+string(rune('0'+generation)))
		})
	}
	l.Lossless(t)
	m.Never(lab.Says(lab.WorkerKilled))
}

// interpreter finds the real interpreter behind a version manager.
func interpreter(t *testing.T, name, print string) string {
	t.Helper()
	lab.Need(t, name)
	out, err := exec.Command(name, strings.Fields(print)...).Output()
	if err != nil {
		t.Skipf("%s does not work: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

const notified = `ready.method = "notify"`

func TestPythonWorkerThatBlocksInAcceptByServerStarterPort(t *testing.T) {
	t.Parallel()
	python := interpreter(t, "python3", "-c print(__import__('sys').executable)")
	inLanguage(t, `["`+python+`", "-c", """
import os, signal, socket
port, fd = os.environ['SERVER_STARTER_PORT'].split('=')
s = socket.socket(fileno=int(fd))
s.setblocking(True)
stop = False
class Stop(Exception): pass
def term(*_):
    global stop
    stop = True
    if accepting: raise Stop
accepting = False
signal.signal(signal.SIGTERM, term)
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])
body = ('generation=' + os.environ['SERVER_STARTER_GENERATION']).encode()
import select
while not stop:
    try:
        accepting = True
        if stop: break
        select.select([s], [], [])
        accepting = False
    except Stop:
        break
    s.setblocking(False)
    try:
        c, _ = s.accept()
    except BlockingIOError:
        continue
    c.setblocking(True)
    c.recv(4096)
    c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n%s' % (len(body), body))
    c.close()
"""]`, notified)
}

func TestPerlWorkerThatPreforksByServerStarterPort(t *testing.T) {
	t.Parallel()
	perl := interpreter(t, "perl", "-e print($^X)")
	inLanguage(t, `["`+perl+`", "-e", '''
use strict; use IO::Socket::INET; use POSIX ();
my ($port, $fd) = split /=/, $ENV{SERVER_STARTER_PORT};
open(my $s, "+<&=", $fd) or die $!;
`+perlChildren+`open(my $n, ">&=", $ENV{NOTIFY_FD}) or die $!;
syswrite($n, "\n");
`+perlReaps+`
''']`, notified)
}

func TestNodeWorkerThatListensOnTheDescriptor(t *testing.T) {
	t.Parallel()
	node := interpreter(t, "node", "-p process.execPath")
	inLanguage(t, `["`+node+`", "-e", """
const http = require('http'), fs = require('fs');
const s = http.createServer((q, a) => {
  a.setHeader('Connection', 'close');
  a.end('generation=' + process.env.SUPERVISORD_GENERATION);
});
s.listen({ fd: 3 }, () => fs.writeSync(+process.env.NOTIFY_FD, '\\n'));
process.on('SIGTERM', () => s.close(() => process.exit(0)));
"""]`, notified)
}

func TestShellWorkerThatIsReadyByANewline(t *testing.T) {
	t.Parallel()
	m := lab.Start(t, "[program.web]\ncommand = [\"sh\", \"-c\", \"echo >&$NOTIFY_FD; exec sleep 1000\"]\n"+notified+"\n")
	m.Serves(1)
	m.Reload()
	m.Gone(1)
}

func TestWorkerWrittenForStartServer(t *testing.T) {
	t.Parallel()
	m := lab.Prepare(t)
	m.Start("[program.web]\ncommand = [\"" + lab.Built.Starter +
		"\"]\nready.delay = \"200ms\"\n[[program.web.listen]]\naddress = \"127.0.0.1:0\"\n")
	m.Serves(1)
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=1") {
		t.Errorf("the answer is %s", got)
	}
	m.Reload()
	m.Gone(1)
	if got := lab.Ask(t, m.Address(), "/"); !strings.Contains(got, "generation=2") {
		t.Errorf("the answer is %s", got)
	}
}
