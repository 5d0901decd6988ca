package convert

import (
	"fmt"
	"strconv"
	"strings"
)

// known is $(circus.NAME) in a command.
func (w *watcher) known(name string) (text, bool) {
	if name == "wid" {
		return text{{shell: "$((SUPERVISORD_SLOT + 1))"}}, true
	}
	socket, ok := strings.CutPrefix(name, "sockets.")
	if ok && w.sockets[socket] {
		return text{{fd: fit(socket)}}, true
	}
	return w.option(name)
}

// command writes what is run: cmd and args, by a shell if that is asked for.
func (w *watcher) command() {
	cmd, args := w.file.value(w.cmd, w.known), w.file.value(w.args, w.known)
	if strings.Contains(cmd.String()+args.String(), "$WID") {
		cmd, args = withWID(cmd), withWID(args)
	}
	words, ok := w.doc.commandWords(w.cmd, cmd)
	if !ok {
		return
	}
	more, err := split(args, false)
	if err != nil {
		w.wrong(w.args, err.Error(), "close it")
		return
	}
	w.run.words = append(words, more...)
	if w.shell {
		w.throughShell(cmd, args)
	} else if w.shellArgs.key != "" {
		w.lacks(w.shellArgs, "circus uses it only with shell = true")
	}
	w.set("", "command", w.run.argv())
}

// throughShell has a shell read the command as it is written.
func (w *watcher) throughShell(cmd, args text) {
	w.run.script = strings.TrimSpace(cmd.String() + " " + args.String())
	if strings.Contains(w.cmd.value+"\n"+w.args.value, placeholder) {
		w.wrong(w.cmd, "has "+placeholder+", which means a listener to supervisord", "write it otherwise, such as {''fd:")
		return
	}
	if w.shellArgs.key == "" {
		return
	}
	words, err := split(w.file.value(w.shellArgs, w.known), false)
	if err != nil {
		w.wrong(w.shellArgs, err.Error(), "close it")
	}
	for _, word := range words {
		if _, ok := word.literal(); !ok {
			w.lacks(w.shellArgs, "a shell's arguments are taken as they are written: write such words into the command itself")
			return
		}
	}
	w.run.args = words
}

// withWID puts the number of the worker in place of $WID, as circus once wrote it.
func withWID(t text) text {
	var out text
	for i := 0; i < len(t); i++ {
		if i+4 <= len(t) && t[i:i+4].String() == "$WID" {
			out = append(out, atom{shell: "$((SUPERVISORD_SLOT + 1))"})
			i += 3
			continue
		}
		out = append(out, t[i])
	}
	return out
}

// option takes stdout_stream.KEY.
func (s *circusStream) option(it item) {
	_, key, _ := strings.Cut(it.key, ".")
	if key == "class" {
		s.class = it.value
		s.item = it
		return
	}
	s.options = append(s.options, it)
}

// streams writes where the output goes.
func (w *watcher) streams() {
	for _, s := range []*circusStream{&w.stdout, &w.stderr} {
		if s.kind == toNull {
			for _, it := range s.options {
				w.lacks(it, "the stream is closed")
			}
			continue
		}
		w.class(s)
	}
	w.outputs(w.stdout.stream, w.stderr.stream)
}

// class converts a stream's class with its options.
func (w *watcher) class(s *circusStream) {
	class := s.class[strings.LastIndexByte(s.class, '.')+1:]
	if class == "" && len(s.options) > 0 {
		class = "FileStream"
	}
	switch class {
	case "":
		return
	case "FileStream", "WatchedFileStream", "TimedRotatingFileStream":
		s.kind = toFile
	case "QueueStream":
		s.kind = kept
	case "StdoutStream":
	case "FancyStdoutStream":
		w.lacks(s.item, "the output goes where supervisord's own goes, as it is")
	default:
		w.lacks(s.item, "output goes to supervisord's own, to a file, or to `supervisord logs`; it is kept for that")
		s.kind = kept
	}
	when, every := "", 1
	for _, it := range s.options {
		w.streamOption(s, class, w.filled(it), &when, &every)
	}
	if class == "TimedRotatingFileStream" {
		w.timed(s, when, every)
	}
	if s.kind == toFile && s.path == "" {
		w.lacks(s.item, "there is no filename: the output is kept for `supervisord logs`")
		s.kind = kept
	}
	s.special()
}

// streamOption takes one option of a stream.
func (w *watcher) streamOption(s *circusStream, class string, it item, when *string, every *int) {
	_, key, _ := strings.Cut(it.key, ".")
	switch {
	case s.kind != toFile:
		w.lacks(it, "the output is passed on as it is")
	case key == "filename":
		s.item, s.path = it, it.value
	case key == "max_bytes" && class == "FileStream":
		n, err := strconv.ParseInt(strings.TrimSpace(it.value), 10, 64)
		if err != nil || n < 0 || n > 1<<50 {
			w.wrong(it, fmt.Sprintf("%q is no number of bytes", it.value), "write a whole number")
		}
		s.size = n
	case key == "backup_count":
		s.backups, _ = w.doc.integer(it)
	case key == "rotate_when":
		*when = strings.ToUpper(it.value)
	case key == "rotate_interval":
		*every, _ = w.doc.integer(it)
	case key == "utc":
		w.lacks(it, "a file is renamed when it is so old, whatever the clock says")
	case key == "time_format":
		w.lacks(it, "lines are written as they come; `supervisord logs --json` knows when")
	default:
		w.lacks(it, "circus does not know it either")
	}
}

// timed converts a file that is rotated by the clock.
func (w *watcher) timed(s *circusStream, when string, every int) {
	seconds, known := map[string]float64{"S": 1, "M": 60, "H": 3600, "D": 86400, "MIDNIGHT": 86400}[when]
	if !known && len(when) == 2 && when[0] == 'W' {
		seconds, known = 7*86400, true
		w.lacks(item{at: s.at, key: s.key, text: "rotate_when " + when}, "a file is renamed when it is a week old, whatever the day")
	}
	if !known || every < 1 {
		w.wrong(s.item, fmt.Sprintf("rotate_when %q, every %d, is not known", when, every), "write S, M, H, D, MIDNIGHT or W0 to W6")
		return
	}
	s.age = seconds * float64(every)
}
