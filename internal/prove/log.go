package prove

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"time"

	"example.org/supervisord/supervisor/program"
)

// line is what is read of one line of supervisord's log.
type line struct {
	Message    string `json:"msg"`
	Program    string `json:"program"`
	Generation int    `json:"generation"`
	PID        int    `json:"pid"`
	Step       string `json:"step"`
	Reason     string `json:"reason"`
	Error      string `json:"error"`
	Level      string `json:"level"`
}

// configRefused is the sentence for a configuration that supervisord does not take.
const configRefused = "configuration refused; nothing has changed"

// kindOfReport are the sentences that matter here.
var kindOfReport = map[program.ReportKind]eventKind{
	program.TrialBegan: began, program.GenerationServes: served, program.TrialFailed: failed,
	program.GenerationGone: gone, program.WorkerReady: ready, program.WorkerStopped: ended,
	program.WorkerKilled: killed, program.WorkerDied: died, configRefused: refused,
}

// parseLine reads a line of the log, in either of its forms; false: it is none (a worker may write to the same stderr).
func parseLine(text string) (line, bool) {
	var l line
	if strings.HasPrefix(text, "{") {
		return l, json.Unmarshal([]byte(text), &l) == nil && l.Message != "" && l.Level != ""
	}
	parts := strings.SplitN(text, "  ", 4) // time, level, sentence, fields
	if len(parts) != 4 || json.Unmarshal([]byte(parts[3]), &l) != nil {
		return line{}, false
	}
	l.Level, l.Message = parts[1], parts[2]
	return l, true
}

// event is what the line tells about the program name; false: nothing.
func (l line) event(name string, at time.Time) (event, bool) {
	kind, known := kindOfReport[program.ReportKind(l.Message)]
	if !known || l.Program != name && kind != refused {
		return event{}, false
	}
	reason := l.Reason
	switch {
	case kind == refused:
		reason = l.Error
	case l.Step != "":
		reason = l.Step + ": " + reason
	}
	return event{at, kind, l.Generation, l.PID, reason}, true
}

// longestLine bounds a line that is looked at: a worker may write what it likes.
const longestLine = 64 << 10

// readLines calls each with every line of r, cut at longestLine, until r ends.
func readLines(r io.Reader, each func(string)) {
	in := bufio.NewReaderSize(r, longestLine)
	for {
		text, rest, err := in.ReadLine()
		if err != nil {
			return
		}
		whole := string(text)
		for rest && err == nil {
			_, rest, err = in.ReadLine()
		}
		each(whole)
	}
}
