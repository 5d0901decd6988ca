package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/supervisor"
)

// logging is how captured output is shown.
type logging struct {
	client            *control.Client
	lines             int
	follow, json, raw bool
	widest            int // name of a program, if lines begin with one; 0: they do not
	paint             terminal.Palette
}

func logsCommand(path *string) *cobra.Command {
	a, l := &asking{path: path}, &logging{}
	c := &cobra.Command{
		Use: "logs [PROGRAM]", Short: "print the captured output of a program, or follow that of all",
		Long: `logs PROGRAM prints the last lines that the workers of a program wrote to a captured stream.
Without PROGRAM, logs prints the last lines of all programs, in the order of time, and follows them; with several
programs each line begins with the name of its program. --follow=false does not follow.
On a terminal, logs shows control characters as ^[ instead of sending them, except for colors; --raw, a pipe and a
file get them unchanged.`,
		ValidArgsFunction: a.programs(1),
	}
	c.Flags().IntVarP(&l.lines, "lines", "n", 100,
		"how many `lines`; of each of several programs 10, if this is not given")
	c.Flags().BoolVarP(&l.follow, "follow", "f", false, "keep printing what the workers write")
	c.Flags().BoolVar(&l.json, "json", false,
		"print one JSON object a line, with time, worker and stream, and without PROGRAM the program")
	c.Flags().BoolVar(&l.raw, "raw", false, "print control characters unchanged, even on a terminal")
	return a.command(c, func(ctx context.Context, args []string) error {
		l.client = a.client
		l.raw = l.raw || !terminal.Is(os.Stdout)
		if len(args) == 0 {
			l.follow = l.follow || !c.Flags().Changed("follow")
			return untilInterrupted(l.all(ctx, c.Flags().Changed("lines")))
		}
		if !l.follow {
			return l.client.Logs(ctx, args[0], l.lines, false, func(e control.LogEntry) { l.print(args[0], e) })
		}
		return untilInterrupted(newFollowing(l).program(ctx, args[0], l.lines))
	})
}

// programEntry is a line of `logs --json` without the name of a program.
type programEntry struct {
	Program string `json:"program"`
	control.LogEntry
}

func (l *logging) print(name string, e control.LogEntry) {
	prefix := ""
	if l.widest > 0 {
		prefix = l.paint.Strong(fmt.Sprintf("%-*s", l.widest, name)) + " | "
	}
	switch {
	case l.json && l.widest > 0:
		printLine(programEntry{name, e})
	case l.json:
		printLine(e)
	case e.LogLine == nil:
		fmt.Fprintf(os.Stderr, "%s(%d lines were missed)\n", prefix, e.Missed)
	case l.raw:
		fmt.Println(prefix + e.Text)
	default:
		fmt.Println(prefix + terminal.Visible(e.Text))
	}
}

// all prints the last lines of all programs, and follows them.
func (l *logging) all(ctx context.Context, counted bool) error {
	st, err := l.client.Status(ctx, "", false)
	if err != nil {
		return err
	}
	names := programNames(st)
	switch {
	case len(names) == 0 && !l.follow:
		return errNoPrograms
	case len(names) > 1 && !counted:
		l.lines = 10
	}
	if len(names) > 1 {
		l.paint = terminal.Colors(os.Stdout)
		for _, name := range names {
			l.widest = max(l.widest, len(name))
		}
	}
	f := newFollowing(l)
	captured, err := f.last(ctx, names)
	if err != nil || !l.follow {
		return err
	}
	return f.follow(ctx, captured)
}

// following are the logs of all programs.
type following struct {
	*logging

	mu      sync.Mutex           // for what follows, and for a line at a time
	printed map[string]time.Time // when the last line that was printed had been read, by program
	running map[string]bool      // programs that are followed
	readers sync.WaitGroup
}

func newFollowing(l *logging) *following {
	return &following{logging: l, printed: map[string]time.Time{}, running: map[string]bool{}}
}

// last prints the last lines of these programs, and returns the programs whose output is captured: at least one, or an
// error.
func (f *following) last(ctx context.Context, names []string) (captured []string, err error) {
	var lines []programEntry
	var without []string
	for _, name := range names {
		bad := f.client.Logs(ctx, name, f.lines, false, func(e control.LogEntry) {
			if e.LogLine != nil {
				lines = append(lines, programEntry{name, e})
			}
		})
		switch {
		case notCaptured(bad):
			without, err = append(without, name), cmp.Or(err, bad)
		case bad != nil:
			return nil, bad
		default:
			captured = append(captured, name)
		}
	}
	if len(captured) == 0 && err != nil {
		return nil, err
	}
	if len(without) > 0 {
		fmt.Fprintf(os.Stderr, "supervisord: not captured, so not shown: the output of %s\n", strings.Join(without, ", "))
	}
	slices.SortStableFunc(lines, func(a, b programEntry) int { return a.Time.Compare(b.Time) })
	for _, e := range lines {
		f.print(e.Program, e.LogEntry)
		f.printed[e.Program] = e.Time
	}
	return captured, nil
}

// notCaptured reports whether a program has no output to show, or has gone.
func notCaptured(err error) bool {
	refused, is := errors.AsType[*control.APIError](err)
	return is && (refused.Code == control.NotNow || refused.Code == control.NoProgram)
}

// follow follows these programs, and others from their next event on, until ctx ends.
func (f *following) follow(ctx context.Context, names []string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer f.readers.Wait()
	defer cancel(nil)
	begin := func(name string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.running[name] {
			return
		}
		f.running[name] = true
		f.readers.Go(func() {
			err := f.program(ctx, name, min(overlap, f.lines*overlap)) // none of the past for -n 0
			f.mu.Lock()
			defer f.mu.Unlock()
			f.running[name] = false // its next event tries again
			if err != nil && !notCaptured(err) {
				cancel(err)
			}
		})
	}
	for _, name := range names {
		begin(name)
	}
	return control.Lasting(ctx, func(ctx context.Context) (bool, error) {
		return false, f.client.Events(ctx, "", func(u supervisor.Update) { begin(u.Program) })
	})
}

// overlap is how many lines more are asked for than may be new, so that none is missed between two requests.
const overlap = 1000

// program follows one program, without the lines that have been printed: at first the last n. It ends when the output
// is not captured any more.
func (f *following) program(ctx context.Context, name string, n int) error {
	began := false
	err := control.Lasting(ctx, func(ctx context.Context) (bool, error) {
		asked, before := 0, n
		err := f.client.Logs(ctx, name, before, true, func(e control.LogEntry) {
			f.mu.Lock()
			defer f.mu.Unlock()
			began = true
			asked++
			if e.LogLine != nil {
				if asked <= before && !e.Time.After(f.printed[name]) {
					return
				}
				f.printed[name] = e.Time
			}
			f.print(name, e)
		})
		if !began { // what comes from now on is printed, and none of the past
			f.mu.Lock()
			defer f.mu.Unlock()
			f.printed[name] = time.Now()
		}
		began, n = began || err == nil, overlap
		return false, err
	})
	if began && notCaptured(err) {
		return nil
	}
	return err
}

func eventsCommand(path *string) *cobra.Command {
	a, asJSON := &asking{path: path}, false
	c := &cobra.Command{
		Use: "events [PROGRAM]", Short: "print what happens, as it happens",
		ValidArgsFunction: a.programs(1),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return a.command(c, func(ctx context.Context, args []string) error {
		return untilInterrupted(a.client.Events(ctx, first(args), func(u supervisor.Update) {
			if asJSON {
				printLine(u)
			} else {
				fmt.Println(u.Time.Local().Format("15:04:05.000"), line(u))
			}
		}))
	})
}
