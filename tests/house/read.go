package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// modulePath is the root module; the one below it in examples has its path as a prefix.
const modulePath = "example.org/supervisord"

// A module is all of the project's Go code but the tests: the root module and the one of the examples.
type module struct {
	fset     *token.FileSet
	packages []*parsed
	exports  map[string]string   // by import path: the compiler's export data
	tests    map[string][]string // by directory: the texts of its test files
	modules  map[string][]string // by program: the modules of others that it links
	wide     []string            // lines over widest columns, with tests, without generated files
}

// A source is one package of it.
type parsed struct {
	path     string
	dir      string
	imports  []string // of this project, direct
	files    []*ast.File
	count    lineCount // without generated files
	programs []string  // that link it
	harness  bool      // imports testing, so that only tests can use it: counted as a test
	types    *types.Package
	info     *types.Info
}

// short returns the import path below the module's.
func (s *parsed) short() string { return strings.TrimPrefix(s.path, modulePath+"/") }

// listed is what go list tells of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
	TestGoFiles             []string
	XTestGoFiles            []string
	DepsErrors              []struct{ Err string }
	Module                  *struct {
		Path string
		Main bool
	}
}

// readModule reads the packages below dirs, each of which is the root of a Go module, and checks their types.
// A directory without go.mod is left out.
func readModule(dirs ...string) (*module, error) {
	m := &module{fset: token.NewFileSet(), exports: map[string]string{}, tests: map[string][]string{},
		modules: map[string][]string{}}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		if err := m.readDir(dir); err != nil {
			return nil, err
		}
	}
	for _, program := range programs {
		linked, err := goList(dirs[0], "-deps", "./"+program)
		if err != nil {
			return nil, err
		}
		m.modules[program] = modulesOf(linked)
		for _, l := range linked {
			if p := m.find(l.ImportPath); p != nil {
				p.programs = append(p.programs, program)
			}
		}
	}
	return m, m.check()
}

// programs are what users install.
var programs = []string{daemonProgram, "cmd/supervisord-tools", "cmd/start_server"}

// daemonProgram is what may run as root.
const daemonProgram = "cmd/supervisord"

// links reports whether a program links s.
func (s *parsed) links(program string) bool { return slices.Contains(s.programs, program) }

// modulesOf returns the modules of others among packages, in order.
func modulesOf(linked []listed) (paths []string) {
	for _, l := range linked {
		if l.Module != nil && !l.Module.Main {
			paths = append(paths, l.Module.Path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (m *module) readDir(dir string) error {
	all, err := goList(dir, "-export", "-deps", "./...")
	if err != nil {
		return err
	}
	for _, l := range all {
		m.exports[l.ImportPath] = l.Export
		ours := l.ImportPath == modulePath || strings.HasPrefix(l.ImportPath, modulePath+"/")
		if !ours || m.find(l.ImportPath) != nil {
			continue
		}
		p, err := m.parse(l)
		if err != nil {
			return err
		}
		m.packages = append(m.packages, p)
	}
	return nil
}

// goList runs go list -json in dir.
func goList(dir string, args ...string) ([]listed, error) {
	cmd := exec.Command("go", append(
		[]string{"list", "-json=ImportPath,Dir,Export,GoFiles,TestGoFiles,XTestGoFiles,Imports,DepsErrors,Module"},
		args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w\n%s", dir, err, stderr.Bytes())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
}

func (m *module) parse(l listed) (*parsed, error) {
	p := &parsed{path: l.ImportPath, dir: l.Dir, harness: slices.Contains(l.Imports, "testing")}
	for _, i := range l.Imports {
		if strings.HasPrefix(i, modulePath+"/") {
			p.imports = append(p.imports, i)
		}
	}
	if err := m.readTests(l); err != nil {
		return nil, err
	}
	for _, name := range l.GoFiles {
		text, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(m.fset, filepath.Join(l.Dir, name), text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, f)
		if !ast.IsGenerated(f) {
			p.count.add(countLines(text))
			m.wide = append(m.wide, wideLines(filepath.Join(l.Dir, name), text)...)
		}
	}
	return p, nil
}

func (m *module) readTests(l listed) error {
	for _, name := range slices.Concat(l.TestGoFiles, l.XTestGoFiles) {
		text, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return err
		}
		m.tests[l.Dir] = append(m.tests[l.Dir], string(text))
		m.wide = append(m.wide, wideLines(filepath.Join(l.Dir, name), text)...)
	}
	return nil
}

// check has the types of every package checked. What they import comes from the compiler's export data.
func (m *module) check() error {
	open := func(path string) (io.ReadCloser, error) { return os.Open(m.exports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(m.fset, "gc", open)}
	for _, p := range m.packages {
		p.info = &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
		var err error
		if p.types, err = conf.Check(p.path, m.fset, p.files, p.info); err != nil {
			return fmt.Errorf("checking %s: %w", p.path, err)
		}
	}
	return nil
}

func (m *module) find(path string) *parsed {
	for _, p := range m.packages {
		if p.path == path {
			return p
		}
	}
	return nil
}
