// Package draft gathers a configuration of supervisord key by key and writes it, with the comments on what has no
// equivalent.
//
// A Draft has a Block for each program. The source's keys come to a Block by Rules, in the order of the source. What
// a value lacks becomes a comment, what the source's own supervisor would reject becomes a problem; Draft.Result
// returns either.
package draft

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/config/environment"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/socket"
)

// Draft gathers the configuration.
type Draft struct {
	source.Input
	source.World
	Head     *Block // what belongs to no program: [supervisor], and comments at the top
	Problems []document.Problem

	about     []string // comments about all programs
	programs  []*Block
	addresses map[string]string // the program that has each address
	logs      map[string]string // the program that writes each log file
	lacking   int
}

// New begins the draft of a source.
func New(s source.Input, w source.World) *Draft {
	d := &Draft{Input: s, World: w, addresses: map[string]string{}, logs: map[string]string{}}
	d.Head = &Block{Draft: d, Tables: map[string]*TOMLTable{}, Given: map[string]source.Setting{}}
	return d
}

// Wrong reports a mistake in the source.
func (d *Draft) Wrong(s source.Setting, what, remedy string) {
	d.Problems = append(d.Problems,
		document.Problem{File: s.At.File, Position: document.Position{Line: s.At.Line}, Key: cmp.Or(s.As, s.Key), What: what,
			Remedy: remedy})
}

// Say adds a comment about all programs, once.
func (d *Draft) Say(text string) {
	if !slices.Contains(d.about, text) {
		d.about = append(d.about, text)
	}
}

// Path makes a path of the source absolute.
func (d *Draft) Path(path string) string { return filepath.Clean(JoinPath(d.Dir, path)) }

// JoinPath resolves a path from a directory.
func JoinPath(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// ReadText reads another file of the source. It reports one that is not text.
func (d *Draft) ReadText(s source.Setting, path string) (string, bool) {
	text, err := d.Read(path)
	if err == nil {
		err = source.CheckText(source.Location{File: path}, text)
	}
	if err != nil {
		d.Wrong(s, "cannot read "+path+": "+err.Error(), "make it a readable text file, or do not name it")
	}
	return text, err == nil
}

// Included reads the files that match a pattern of the source.
func (d *Draft) Included(s source.Setting, pattern string, read func(path, text string)) {
	paths, err := d.Glob(pattern)
	if err != nil || len(paths) == 0 {
		d.Head.Note("", s, "no file matches "+pattern)
	}
	for _, path := range paths {
		if text, ok := d.ReadText(s, path); ok {
			read(path, text)
		}
	}
}

// Result returns the configuration, or every mistake in the source.
func (d *Draft) Result() (string, error) {
	if len(d.Problems) > 0 {
		slices.SortStableFunc(d.Problems, func(a, b document.Problem) int { return cmp.Compare(a.Line, b.Line) })
		return "", &document.Error{Problems: slices.Compact(d.Problems)}
	}
	if len(d.programs) == 0 {
		return "", source.Malformed(source.Location{File: d.Name}, "defines no program",
			"name the file that defines one, and check --from")
	}
	const maxResult, mostElements = 1 << 20, 45_000 // package config reads 1 MiB, and 50,000 keys and elements of arrays
	text := d.write()
	if elements := strings.Count(text, "\n") + strings.Count(text, `", "`); len(text) > maxResult ||
		elements > mostElements {
		return "", source.Malformed(source.Location{File: d.Name}, "makes a configuration that is too large for supervisord",
			"convert it in parts")
	}
	return text, nil
}

// Count returns how many programs will run, how many are commented out, and how many settings have no equivalent.
func (d *Draft) Count() (run, off, lacking int) {
	for _, p := range d.programs {
		if p.Off {
			off++
		}
	}
	return len(d.programs) - off, off, d.lacking
}

// Running returns the names of the programs that will run.
func (d *Draft) Running() (names []string) {
	for _, p := range d.programs {
		if !p.Off {
			names = append(names, p.ProgramName)
		}
	}
	return names
}

// Block is one [program.NAME], or the head of the draft.
type Block struct {
	*Draft
	ProgramName string
	Off         bool // commented out: its own supervisor would not start it
	NoPort      bool // the variable PORT does not say where it listens
	Quiet       bool // a copy of the program before, whose comments hold for both
	Tables      map[string]*TOMLTable
	Listen      []*TOMLTable
	Pending     []string                  // comments of the source for the next key
	Given       map[string]source.Setting // keys of the source so far
	Run         shell.Invocation          // what Argv makes the command of
	// replaces what the source's supervisor expands in a value; nil: nothing
	Fill func(source.Setting) (source.Setting, bool)
	lead []string // comments of the source above the program
}

// NewProgram begins a program. Its name is made valid and unique.
func (d *Draft) NewProgram(s source.Setting, name string) *Block {
	p := &Block{Draft: d, ProgramName: ValidName(name), Tables: map[string]*TOMLTable{}, lead: s.Comments,
		Given: map[string]source.Setting{}}
	taken := func(other *Block) bool { return other.ProgramName == p.ProgramName }
	for n := 2; slices.ContainsFunc(d.programs, taken); n++ {
		end := "-" + strconv.Itoa(n)
		p.ProgramName = ValidName(name)
		p.ProgramName = p.ProgramName[:min(len(p.ProgramName), 64-len(end))] + end
	}
	d.programs = append(d.programs, p)
	if p.ProgramName != name {
		p.Note("", s, fmt.Sprintf("renamed to %s: a name is unique and has at most 64 letters, digits, dots, dashes and "+
			"underscores", p.ProgramName))
	}
	return p
}

// ValidName makes a name that a program or listener can have.
func ValidName(name string) string {
	const valid = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
	name = strings.Map(func(r rune) rune {
		if strings.ContainsRune(valid, r) {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimRight(strings.TrimLeft(name, ".-_"), "-")
	return cmp.Or(name[:min(len(name), 64)], "program")
}

// Table returns one of the program's tables: "" is its own, "stop" for example another. [supervisor] belongs to the
// head.
func (p *Block) Table(name string) *TOMLTable {
	if name == "supervisor" {
		p = p.Head
	}
	if p.Tables[name] == nil {
		p.Tables[name] = &TOMLTable{}
	}
	return p.Tables[name]
}

// In returns a table and the rest of a key such as "stop.signal".
func (p *Block) In(key string) (t *TOMLTable, rest string) {
	name, rest, dotted := strings.Cut(key, ".")
	if !dotted {
		return p.Table(""), key
	}
	return p.Table(name), rest
}

// Set sets a key such as "stop.signal".
func (p *Block) Set(key string, value any) {
	t, rest := p.In(key)
	p.carry(t)
	t.Set(rest, value)
}

// Value returns the value of a key in TOML, "" if it is not set.
func (p *Block) Value(key string) string {
	t, rest := p.In(key)
	return t.Value(rest)
}

// Unset reports whether a table has no keys.
func (p *Block) Unset(name string) bool {
	return !slices.ContainsFunc(*p.Table(name), func(l line) bool { return l.key != "" })
}

// carry writes the source's comments that wait for the next key.
func (p *Block) carry(t *TOMLTable) {
	for _, c := range p.Pending {
		t.Comment(c)
	}
	p.Pending = nil
}

// Note adds a comment about a setting to a table, once. It reports whether it did.
func (p *Block) Note(table string, s source.Setting, text string) bool {
	if p.Quiet {
		return false
	}
	t := p.Table(table)
	p.carry(t)
	return t.Comment(fmt.Sprintf("%s: %s: %s", s.At, s, text))
}

// Lacks adds the comment that a setting has no equivalent, with what to do instead.
func (p *Block) Lacks(s source.Setting, instead string) {
	if p.Note("", s, "no equivalent: "+instead) {
		p.lacking++
	}
}

// Listener adds a listener. It returns nil if another program has the address or the address is invalid.
func (p *Block) Listener(s source.Setting, name, address string) *TOMLTable {
	first, taken := p.addresses[address]
	switch {
	case taken && p.Off:
		p.Note("", s, fmt.Sprintf("%s is also the address of %s: only one program can have a socket", address, first))
	case taken:
		p.Lacks(s, fmt.Sprintf("%s is already the address of %s: only one program can have a socket", address, first))
		return nil
	}
	_, err := socket.ParseAddress(address)
	if bad, ok := errors.AsType[*socket.SpecError](err); ok {
		p.Wrong(s, bad.What, bad.Remedy)
		return nil
	}
	if !strings.HasSuffix(address, ":0") && !p.Off {
		p.addresses[address] = p.ProgramName
	}
	t := &TOMLTable{}
	p.carry(t)
	if name != "" {
		t.Set("name", name)
	}
	t.Set("address", address)
	p.Listen = append(p.Listen, t)
	return t
}

// AnybodyMayConnect gives a listener at a path the mode that the path has under systemd, and under the servers that
// open it themselves: with supervisord's default, which the umask reduces, a proxy of another user could not connect.
func (t *TOMLTable) AnybodyMayConnect() {
	if strings.HasPrefix(t.Value("address"), `"unix:/`) {
		t.Set("mode", "0666")
	}
}

// Argv sets the command from Run.
func (p *Block) Argv() { p.Set("command", p.Run.Argv()) }

// Environment sets a variable, in a shell if only a shell knows the value.
func (p *Block) Environment(s source.Setting, name, value string) {
	const longest = 255 // package config bounds the length of a key
	err := environment.CheckName(name)
	switch {
	case err != nil:
		p.Lacks(s, err.Error())
	case len(name) > longest:
		p.Lacks(s, fmt.Sprintf("the name of a variable has at most %d bytes", longest))
	case shell.Dynamic(value):
		p.Run.Export(name, value)
	default:
		p.Set("environment."+name, value)
	}
}

// Otherwise sets a key that the source has not set to the source's default.
func (p *Block) Otherwise(key string, value any) {
	if p.Value(key) == "" {
		p.Set(key, value)
	}
}

// RestartAfterFailure sets what to do after a failure where the source does not say: its default, to do nothing, would
// leave a server down after its first crash, and its clients waiting.
func (p *Block) RestartAfterFailure(s source.Setting, without string) {
	if p.Value("restart.when") == "" {
		p.Note("restart", s, without+" leaves it down after a crash; write \"never\" for that, or \"always\" to start it "+
			"again after any exit")
		p.Set("restart.when", "on-failure")
	}
}

// Unless reports whether a value is possible, and comments the setting if it is not.
func (p *Block) Unless(impossible bool, s source.Setting, why string) bool {
	if impossible {
		p.Lacks(s, why)
	}
	return !impossible
}

// Whole comments a section that has no equivalent.
func (d *Draft) Whole(s *source.Section, instead string) {
	d.Head.Pending = append(d.Head.Pending, s.Comments...)
	d.Head.Lacks(s.Setting, instead)
	for _, e := range s.Entries {
		d.Head.Note("", e.Setting, "belongs to ["+s.Name+"]")
	}
}

// CommandWords splits a command and reports what is wrong with it.
func (d *Draft) CommandWords(s source.Setting, value string) ([]string, bool) {
	words, err := shell.Split(value)
	switch {
	case err != nil:
		remedy := "close it"
		for _, c := range s.Comments {
			remedy = fmt.Sprintf("close it; %s takes everything after a space and ; or # for a comment, even in quotes: %q",
				d.Kind, source.Shorten(c))
		}
		d.Wrong(s, err.Error(), remedy)
	case len(words) == 0 || words[0] == "":
		d.Wrong(s, "is empty", "write the program and its arguments")
	default:
		return words, true
	}
	return nil, false
}
