package systemd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/socket"
)

// game is a UDP server that knows nothing of generations: it answers with its own, and with how many datagrams it has
// got from this client.
const game = `
open(my $s, "+<&=", 3) or die $!;
my %got;
while (defined(my $client = recv($s, my $text, 100, 0))) {
	send($s, "$ENV{SUPERVISORD_GENERATION} " . ++$got{$client}, 0, $client);
}
`

// players are clients that send as fast as they are answered, one more in each round, until there is a file /run/over.
// Each must reach the generation where it began, which must know all that it has sent. At the end they print the
// generation of the first one, and that of one who begins then.
const players = `
use Socket;
sub join_in {
	socket(my $s, PF_INET, SOCK_DGRAM, 0) or die $!;
	connect($s, sockaddr_in(9053, INADDR_LOOPBACK)) or die $!;
	return { socket => $s };
}
sub move {
	my $p = shift;
	send($p->{socket}, "move", 0);
	vec(my $ready = "", fileno($p->{socket}), 1) = 1;
	select($ready, undef, undef, 30) or die "no answer from generation $p->{generation}\n";
	recv($p->{socket}, my $text, 100, 0);
	my ($generation, $count) = split / /, $text;
	$p->{generation} //= $generation;
	$generation == $p->{generation} && $count == ++$p->{sent}
		or die "datagram $p->{sent} of a client of generation $p->{generation} is number $count of $generation\n";
}
my @players;
until (-e "/run/over") {
	push @players, join_in() if @players < 200;
	move($_) for @players;
	open(my $begun, ">", "/run/begun");
}
my $late = join_in();
move($late);
print "$players[0]{generation} $late->{generation}\n";
`

func TestKillOfTheMasterMidReloadMovesNoFlow(t *testing.T) {
	if wrong := (socket.Spec{Handover: socket.Flow}).Unpermitted(); wrong != nil {
		t.Skip(wrong)
	}
	Each(t, func(t *testing.T, l *Lab) {
		l.Write("/usr/local/bin/game", game, 0o644)
		l.Write("/usr/local/bin/players", players, 0o644)
		l.Copy(filepath.Join(repository(t), "systemd/drop-ins/flow.conf"), dropIns+"/flow.conf")
		l.Start(`
[program.game]
command = ["/usr/bin/perl", "/usr/local/bin/game"]
drain = { timeout = "1h", silence = "1h" }
reload = { max_draining = 0 }
[[program.game.listen]]
address = "udp:127.0.0.1:9053"
handover = "flow"
flows = 8192
`)
		played := l.Background("perl", "/usr/local/bin/players")
		l.Until("the players have begun", func() bool {
			_, err := os.Stat(l.Path("/run/begun"))
			return err == nil
		})
		for range 3 {
			l.Run("systemctl", "reset-failed", "supervisord")
			l.Run("systemctl", "kill", "-s", "HUP", "--kill-who=main", "supervisord")
			l.kill()
			l.Run("supervisord", "reload")
		}
		l.Write("/run/over", "", 0o644)
		var first, late int
		out := <-played
		if _, err := fmt.Sscan(out, &first, &late); err != nil || first != 1 || late < 4 {
			t.Errorf("the players say: %s", out)
		}
	})
}

func TestKillOfTheMasterMidReloadMovesNoConnectionOfQUIC(t *testing.T) {
	Each(t, func(t *testing.T, l *Lab) {
		l.Install("examples/measure/quic", "/usr/local/bin/quic")
		l.Start(`
[program.web]
command = ["/usr/local/bin/quic"]
drain.timeout = "1s"
stop.timeout = "5m"
[[program.web.listen]]
address = "udp:127.0.0.1:9443"
handover = "quic"
`)
		l.Run("mkfifo", "/run/until")
		until, err := os.OpenFile(l.Path("/run/until"), os.O_RDWR, 0) // the clients end when it is closed
		must(t, err)
		defer until.Close()
		told := l.Background("sh", "-c",
			"quic -clients 20 -address 127.0.0.1:9443 </run/until 2>&1 | tee /run/told | tail -n 5")
		l.Until("all clients have been answered", func() bool {
			text, _ := os.ReadFile(l.Path("/run/told"))
			return strings.HasPrefix(string(text), "settled 1")
		})
		for range 3 {
			l.Run("systemctl", "reset-failed", "supervisord")
			l.Run("systemctl", "kill", "-s", "HUP", "--kill-who=main", "supervisord")
			l.kill()
			l.Run("supervisord", "reload")
		}
		must(t, until.Close())
		out := <-told
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var handshakes, requests, failed int
		_, err = fmt.Sscanf(lines[len(lines)-1], "%d handshakes, %d requests, %d failed", &handshakes, &requests, &failed)
		if err != nil || failed > 0 || requests < handshakes || handshakes < 20 {
			t.Errorf("the clients say: %s", out)
		}
		t.Log(lines[len(lines)-1])
		if said := l.Run("journalctl", "--no-pager", "--output=cat"); strings.Contains(said, "has got a datagram of lane") {
			t.Errorf("datagrams of other generations have come:\n%s", said)
		}
	})
}
