package fleet

import (
	"os"
	"regexp"
	"strings"

	"example.org/supervisord/internal/lab"
)

// transcriptFile is the transcript of a roll that fails on the fifth of twelve hosts.
const transcriptFile = "docs/fleet-roll.txt"

const preface = `A roll over twelve hosts under load. Release 2 cannot read its configuration on web-05, so the roll
stops there. Written by tests/fleet; the canary lasted one second, and so did supervisord_keep. The checksums in the
names of the releases are made up.

$ ansible-playbook roll.yml -e supervisord_release=2 \
    -e '{"roll_serial": [1, 4, 7], "supervisord_canary_for": "1s", "supervisord_keep": "1s"}'
`

// transcript writes what a roll said, if the flag -write is given.
func (f *fleet) transcript(p played) {
	f.t.Helper()
	if !*write {
		return
	}
	text := preface + neutral(strings.ReplaceAll(p.out, f.dir+"/ansible/", ""))
	lab.Must(f.t, os.WriteFile(lab.Root(transcriptFile), []byte(text), 0o644))
}

var checksum = regexp.MustCompile(`\b(\d)-[0-9a-f]{7}\b`)

// neutral replaces the checksums of releases, which differ because each host listens on another address, and removes
// spaces at the end.
func neutral(out string) string {
	out = checksum.ReplaceAllString(out, "$1-95637eb")
	var b strings.Builder
	for line := range strings.Lines(out) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}
