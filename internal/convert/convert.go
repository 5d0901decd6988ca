// Package convert translates the configuration of another supervisor: the command line of start_server, the ini file of
// Python's supervisor, a Procfile, a unit of systemd or a quadlet of podman, an ecosystem file of pm2, or a file of
// Docker Compose.
//
// Package source reads, with package shell; package draft writes, with package servers; packages unit and apps convert
// the sources that are not here. A source is a row of the table sources and a file with its keys as a table of
// draft.Rules. Everything that a source says ends up in a draft.Draft, in the order of the source, in TOML that package
// config accepts. A key is converted, or a comment names its position, says that it has no equivalent, and what to do
// instead; no key is dropped. A source that its own supervisor would reject is an error.
package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/convert/apps"
	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/convert/unit"
	"example.org/supervisord/internal/pattern"
)

// sources lists how each kind is recognized, by the first word of a command line or by the sections of a file, and
// converted.
func sources() []converter {
	return []converter{
		{source.StartServer, "start_server start_server.pl", "", (*conversion).startServer},
		{source.Supervisor, "", "supervisord program fcgi-program eventlistener group include unix_http_server " +
			"inet_http_server supervisorctl rpcinterface",
			(*conversion).supervisor},
		{source.Procfile, "foreman honcho", "", (*conversion).procfile},
		{source.PM2, "", "", func(d *conversion) { apps.PM2(d.Draft) }},
		{source.Compose, "", "", func(d *conversion) { apps.Compose(d.Draft) }},
		{source.Systemd, "", "Unit Service Socket Install Container", func(d *conversion) { unit.Convert(d.Draft) }},
	}
}

type converter struct {
	kind               source.SourceKind
	commands, sections string
	convert            func(d *conversion)
}

// Kinds lists every kind, in the order of the documentation.
func Kinds() (kinds []source.SourceKind) {
	for _, s := range sources() {
		kinds = append(kinds, s.kind)
	}
	return kinds
}

// Result is a configuration and a summary of it.
type Result struct {
	Kind     source.SourceKind
	Text     string
	Programs int      // that will run
	Off      int      // that are commented out, because their own supervisor would not start them
	Lacking  int      // settings without an equivalent
	Next     []string // what to do with it, in order; FILE stands for its name
}

// conversion is a draft with the readers of the sources.
type conversion struct{ *draft.Draft }

// Convert converts a source. A malformed source is a *document.Error that lists every mistake with its position.
func Convert(s source.Input, w source.World) (Result, error) {
	err := source.CheckText(source.Location{File: s.Name}, s.Text)
	for i := 0; i < len(s.Args) && err == nil; i++ {
		err = source.CheckText(source.Location{File: fmt.Sprintf("argument %d", i+1)}, s.Args[i])
	}
	if err == nil {
		err = rejectTemplate(s)
	}
	if s.Kind == "" && err == nil {
		s.Kind, err = recognize(s)
	}
	i := slices.Index(Kinds(), s.Kind)
	if err == nil && i < 0 {
		err = source.Malformed(source.Location{}, fmt.Sprintf("%q is unknown", s.Kind), "use one of "+kindNames())
	}
	if err != nil {
		return Result{}, err
	}
	d := &conversion{Draft: draft.New(s, w)}
	sources()[i].convert(d)
	text, err := d.Result()
	if err != nil {
		return Result{}, err
	}
	r := Result{Kind: s.Kind, Text: text, Next: d.next()}
	r.Programs, r.Off, r.Lacking = d.Count()
	return r, nil
}

func kindNames() string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(Kinds()), "[]"), " ", ", ")
}

// kindOfCommand returns the kind of a command line by its first word, "" if it is unknown.
func kindOfCommand(word string) source.SourceKind {
	for _, s := range sources() {
		if slices.Contains(strings.Fields(s.commands), filepath.Base(word)) {
			return s.kind
		}
	}
	return ""
}

// recognize finds the kind of a source: of a command line by its first word, of a file by its name or content.
func recognize(s source.Input) (source.SourceKind, error) {
	remedy := "name its kind with --from: " + kindNames()
	switch {
	case s.Args != nil && len(s.Args) == 0:
		return "", source.Malformed(source.Location{File: "the command line"}, "is empty",
			"write for example: supervisord convert -- start_server --port 80 -- ./app")
	case s.Args != nil:
		if k := kindOfCommand(s.Args[0]); k != "" {
			return k, nil
		}
		return "", source.Malformed(source.Location{File: "argument 1"}, fmt.Sprintf("%q is not a known command", s.Args[0]),
			remedy)
	}
	if filepath.Base(s.Name) == "Socketfile" {
		return "", source.Malformed(source.Location{File: s.Name}, "is read with the Procfile beside it",
			"write: supervisord convert "+filepath.Join(filepath.Dir(s.Name), "Procfile"))
	}
	if k := kindOfName(filepath.Base(s.Name)); k != "" {
		return k, nil
	}
	if ofSupervisord().MatchString(s.Text) {
		return "", source.Malformed(source.Location{File: s.Name}, "is supervisord's own configuration already",
			"check it with: supervisord check -c "+s.Name)
	}
	found := candidates(s.Text)
	if slices.Contains([]string{".yaml", ".yml", ".json", ".toml"}, filepath.Ext(s.Name)) {
		// name: value, as in a Procfile
		found = slices.DeleteFunc(found, func(k source.SourceKind) bool { return k == source.Procfile })
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", source.Malformed(source.Location{File: s.Name}, "is not a known kind of configuration", remedy)
	default:
		return "", source.Malformed(source.Location{File: s.Name}, fmt.Sprintf("may be %s or %s", found[0], found[1]), remedy)
	}
}

// kindOfName returns the kind of a file by its name, "" if that says nothing.
func kindOfName(base string) source.SourceKind {
	switch ext := filepath.Ext(base); {
	case base == "Procfile", strings.HasPrefix(base, "Procfile."):
		return source.Procfile
	case ext == ".service", ext == ".socket", ext == ".container":
		return source.Systemd
	case strings.Contains(base, ".config.") &&
		strings.HasSuffix(ext, "js"), strings.HasPrefix(base, "ecosystem"), strings.HasPrefix(base, "pm2"):
		return source.PM2
	case apps.IsCompose(base):
		return source.Compose
	}
	return ""
}

// What a file of pm2, of Docker Compose, and of this supervisord has.
var (
	ofSupervisord = pattern.Lazy(`(?m)^\[(?:supervisor|program\.[^\]]+)\]\s*(?:#.*)?$`)
	ofPM2         = pattern.Lazy(`(?m)^\s*(?:module\.exports\s*=|export default|\{?\s*["']?apps["']?\s*:)`)
	ofCompose     = pattern.Lazy(`(?m)^services:`)
)

// candidates lists the kinds that the text of a file looks like: by its sections, else by its commands, else by its
// lines.
func candidates(text string) []source.SourceKind {
	var bySection, byCommand []source.SourceKind
	for line := range strings.SplitSeq(source.Normalize(text), "\n") {
		name, isSection := strings.CutPrefix(strings.TrimSpace(line), "[")
		for _, s := range sources() {
			if end := strings.IndexAny(name, ":]"); isSection && end >= 0 &&
				slices.Contains(strings.Fields(s.sections), name[:end]) {
				bySection = append(bySection, s.kind)
			}
		}
		words := strings.Fields(line)
		for len(words) > 0 && (words[0] == "exec" || words[0] == "env" || strings.Contains(words[0], "=")) {
			words = words[1:]
		}
		if len(words) > 0 && kindOfCommand(words[0]) != "" {
			byCommand = append(byCommand, kindOfCommand(words[0]))
		}
	}
	for _, found := range [][]source.SourceKind{bySection, byCommand} {
		if slices.Sort(found); len(found) > 0 {
			return slices.Compact(found)
		}
	}
	switch {
	case ofCompose().MatchString(text):
		return []source.SourceKind{source.Compose}
	case ofPM2().MatchString(text):
		return []source.SourceKind{source.PM2}
	}
	if isProcfile(text) {
		return []source.SourceKind{source.Procfile}
	}
	return nil
}

// template matches what Jinja (Ansible, Salt), ERB (Puppet, Chef) and Helm replace. A Go template such as docker's
// {{.Names}} or {{json .}} is an argument of a program.
var template = pattern.Lazy(`\{%-?\s*\w|<%[=#-]?\s|` +
	`\{\{-?\s*(?:[A-Za-z_](?:[^{}\s]|\s+[^{}.\s])*|\.(?:Values|Release|Chart)\b[^{}]*)\s*-?\}\}`)

// rejectTemplate rejects a file that another program makes a configuration of.
func rejectTemplate(s source.Input) error {
	for i, line := range strings.Split(s.Text, "\n") {
		if found := template().FindString(line); found != "" {
			return source.Malformed(source.Location{File: s.Name, Line: i + 1},
				fmt.Sprintf("%q is of a template, not of a configuration", source.Shorten(found)),
				"convert the file that is made of it: for Ansible, the one on the machine")
		}
	}
	return nil
}

// next says what to do with the result, in order. The old supervisor holds the ports, so it must go before the new one
// starts.
func (d *conversion) next() []string {
	unit := filepath.Base(d.Name)
	off := map[source.SourceKind]string{
		source.StartServer: "stop start_server (start_server --stop, or its own supervisor)",
		source.Supervisor:  "stop supervisor: systemctl disable --now supervisor",
		source.Procfile:    "stop foreman, or what runs the Procfile",
		source.Systemd:     "systemctl disable --now " + unit,
		source.PM2:         "pm2 stop " + unit + ", and pm2 delete " + unit + " && pm2 save when all is well",
		source.Compose:     "docker compose stop " + strings.Join(d.Running(), " "),
	}[d.Kind]
	if d.Kind == source.Systemd && strings.HasSuffix(unit, ".service") {
		off += " " + strings.TrimSuffix(unit, ".service") + ".socket (if there is one)"
	}
	if name, is := strings.CutSuffix(unit, ".container"); is {
		off = "systemctl stop " + name + ".service, and move " + unit + " away, else podman makes the service again at boot"
	}
	run := "supervisord -c FILE (docs/systemd.md runs it at boot)"
	return []string{
		`read each "no equivalent" and "to do" in FILE`,
		"supervisord check -c FILE",
		"to try it beside the old one, give the listeners of a copy other ports: supervisord prove -c COPY",
		fmt.Sprintf("%s; then %s", off, run),
		"supervisord prove -c FILE: it deploys under load and says whether a request was lost",
		"from now on deploy with supervisord reload -c FILE",
	}
}
