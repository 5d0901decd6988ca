package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/internal/lab/must"
)

// TestPrograms reads configurations as testdata/programs has them, and compares what comes of them: with -rewrite it
// writes that. After "program" are keys of [program.web], after "file" is a whole file. What differs from a program of
// a command alone is printed, with what is said about it; "defaults" prints that program.
func TestPrograms(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "/run/a:/run/b")
	datadriven.Walk(t, "testdata/programs", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			text := d.Input
			if d.Cmd == "program" {
				text = plainProgram + text
			}
			plain := load(t, plainProgram)
			if d.Cmd == "defaults" {
				text, plain = plainProgram, &Config{Programs: make([]Program, 1)}
			}
			dir := must.Files(t, map[string]string{"c.toml": text, "web.env": ""})
			plain.Programs[0].File, plain.Programs[0].Line, plain.Programs[0].Directory = "", 0, dir
			return strings.ReplaceAll(outcome(filepath.Join(dir, "c.toml"), plain), dir, "DIR")
		})
	})
}

const plainProgram = "[program.web]\ncommand = [\"true\"]\n"

// outcome is what a file comes to, beside a plain configuration.
func outcome(path string, plain *Config) string {
	var b strings.Builder
	c, err := Load(path)
	if refused, is := errors.AsType[*document.Error](err); is {
		c = &Config{Warnings: refused.Problems}
	} else {
		show(&b, "supervisor", reflect.ValueOf(c.Supervisor), reflect.ValueOf(plain.Supervisor))
		if mode := c.Supervisor.ControlMode(); c.Supervisor.ControlRead != plain.Supervisor.ControlRead {
			fmt.Fprintln(&b, "supervisor.ControlMode():", mode)
		}
		for _, p := range c.Programs {
			p.File, p.Line = "", 0
			show(&b, p.Name, reflect.ValueOf(p), reflect.ValueOf(plain.Programs[0]))
		}
	}
	for _, p := range c.Check() {
		if strings.Contains(p.Key, ".limits.") && !p.IsError() {
			continue // it depends on the machine: see limits_test.go
		}
		p.File = ""
		fmt.Fprintln(&b, strings.TrimPrefix(p.String(), ":"))
	}
	return b.String()
}

// show writes what differs in got from want, a line for each value.
func show(b *strings.Builder, path string, got, want reflect.Value) {
	_, isText := got.Interface().(fmt.Stringer)
	switch {
	case reflect.DeepEqual(got.Interface(), want.Interface()):
	case got.Kind() == reflect.Struct && !isText:
		for i := range got.NumField() {
			if f := got.Type().Field(i); f.Anonymous {
				show(b, path, got.Field(i), want.Field(i))
			} else if f.IsExported() && f.Name != "Program" {
				show(b, path+"."+f.Name, got.Field(i), want.Field(i))
			}
		}
	case got.Kind() == reflect.Slice && got.Type().Elem().Kind() == reflect.Struct && got.Len() > 0:
		for i := range got.Len() {
			show(b, fmt.Sprintf("%s[%d]", path, i), got.Index(i), reflect.Zero(got.Type().Elem()))
		}
	case got.Kind() == reflect.Pointer:
		fmt.Fprintf(b, "%s: %v\n", path, got.Elem())
	case isWords(got.Type()):
		fmt.Fprintf(b, "%s: %q\n", path, got)
	default:
		fmt.Fprintf(b, "%s: %v\n", path, got)
	}
}

// isWords reports whether values of a type are strings, or consist of them.
func isWords(t reflect.Type) bool {
	return t.Kind() == reflect.String || (t.Kind() == reflect.Slice || t.Kind() == reflect.Map) && isWords(t.Elem())
}
