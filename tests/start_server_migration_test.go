package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/supervisord/internal/lab"
)

// deployScript is a script from years of use with the Perl start_server.
const deployScript = `#!/bin/sh
set -e
cd "$(dirname "$0")"
case $1 in
start)
	start_server --port="$ADDRESS" --path=web.sock --interval=1 --signal-on-hup=TERM --pid-file=web.pid \
		--status-file=web.status \
		--envdir=env --log-file=web.log --daemonize -- perl -w worker.pl
	;;
deploy) start_server --restart --pid-file=web.pid --status-file=web.status ;;
stop) start_server --stop --pid-file=web.pid ;;
esac
`

// perlWorker accepts in two processes and answers every accepted request before it exits. It is not written for
// supervisord.
const perlWorker = `
use strict; use POSIX ();
my %ports = map { split /=/, $_, 2 } split /;/, $ENV{SERVER_STARTER_PORT};
open(my $s, "+<&=", $ports{$ENV{ADDRESS}}) or die $!;
open(my $e, ">", "seen.$ENV{SERVER_STARTER_GENERATION}") or die $!;
print $e "$_=$ENV{$_}\n" for qw(SERVER_STARTER_GENERATION COLOUR ENVDIR);
print $e join(";", sort keys %ports), "\n", (-t STDIN ? "terminal" : "none"), "\n";
close $e;
my @kids;
for (1..2) {
    my $pid = fork() // die;
    if (!$pid) {
        my $stop = 0;
        POSIX::sigaction(POSIX::SIGTERM(), POSIX::SigAction->new(sub { $stop = 1 }));
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
for my $k (@kids) { while (waitpid($k, 0) != $k) { kill TERM => @kids; last if $!{ECHILD} } }
`

// session is a service under the start_server that is first in PATH, from start to stop.
type session struct {
	*lab.Supervisord
	address string
	path    string
	tardy   bool // --stop returns while the server still removes its files, as that of the reference does
}

func newSession(t *testing.T, folder string) *session {
	t.Helper()
	s := &session{Supervisord: lab.PrepareStarter(t), address: lab.Reserve(t), path: folder}
	s.File("deploy.sh", deployScript)
	s.File("worker.pl", perlWorker)
	s.File("env/COLOUR", "red")
	return s
}

// script runs the script, which must succeed.
func (s *session) script(word string) {
	s.T.Helper()
	c := exec.Command("sh", s.Path("deploy.sh"), word)
	c.Env = append(s.Environ(), "ADDRESS="+s.address, "PATH="+s.path+":"+os.Getenv("PATH"))
	if out, err := c.CombinedOutput(); err != nil {
		log, _ := os.ReadFile(s.Path("web.log"))
		s.T.Fatalf("%s: %v\n%s\nthe log:\n%s", word, err, out, log)
	}
}

// live starts the service, deploys under load and stops it. It returns the log and what each worker saw, without what
// differs from run to run, for comparison.
func (s *session) live(underLoad func(deploy func())) string {
	s.T.Helper()
	s.script("start")
	s.Until("the status file exists", func() bool { text, _ := os.ReadFile(s.Path("web.status")); return len(text) > 0 })
	underLoad(func() {
		s.script("deploy")
		if text := s.Read("web.status"); strings.Count(text, "\n") != 1 {
			s.T.Errorf("after a deploy the status is %q", text)
		}
	})
	s.script("stop")
	ended := func() { s.Until("every process has exited", func() bool { return len(s.Processes()) == 0 }) }
	if s.tardy {
		ended()
	}
	for _, gone := range []string{"web.pid", "web.status", "web.sock"} {
		if _, err := os.Lstat(s.Path(gone)); err == nil {
			s.T.Errorf("%s is left", gone)
		}
	}
	ended()
	text := s.Read("web.log")
	for generation := 1; generation <= 3; generation++ {
		text += s.Read(fmt.Sprintf("seen.%d", generation))
	}
	text = strings.ReplaceAll(text, s.address, "ADDRESS")
	return regexp.MustCompile(`\b[0-9]{3,}\b`).ReplaceAllString(text, "PID")
}

// ours returns a directory in which start_server is supervisord's.
func ours(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	lab.Must(t, os.Symlink(lab.Built.StartServer, filepath.Join(dir, "start_server")))
	return dir
}

func TestScriptWrittenForPerlStartServerDeploysWithoutLoss(t *testing.T) {
	t.Parallel()
	lab.Need(t, "perl")
	s := newSession(t, ours(t))
	s.live(func(deploy func()) {
		l := lab.PressNew(t, s.address, 8, 5*time.Millisecond)
		deploy()
		deploy()
		l.Lossless(t)
	})
}

func TestScriptSeesNoDifferenceFromTheReference(t *testing.T) {
	t.Parallel()
	reference := lab.Need(t, "start_server")
	if out, err := exec.Command("perl", "-c", reference).CombinedOutput(); err != nil {
		t.Skipf("the installed start_server is not the reference: %s", out)
	}
	twice := func(deploy func()) {
		deploy()
		deploy()
	}
	theirs := newSession(t, filepath.Dir(reference))
	theirs.tardy = true
	want := theirs.live(twice)
	if got := newSession(t, ours(t)).live(twice); got != want {
		t.Errorf("under start_server\n%s\nunder the reference\n%s", got, want)
	}
}
