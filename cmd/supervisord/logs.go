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

// logging shows captured output.
type logging struct {
	client            *control.Client
	lines             int
	follow, json, raw bool
	all               bool // programs, also those that come
	widest            int  // width of the column of names; 0: lines have no name
	paint             terminal.Palette

	mu      sync.Mutex           // for what follows, and for a line at a time
	printed map[string]time.Time // when the last line that was printed had been read, by program
	running map[string]bool      // programs that are followed
	readers sync.WaitGroup
}

func logsCommand(path *string) *cobra.Command {
	a, l := &asking{path: path}, &logging{printed: map[string]time.Time{}, running: map[string]bool{}}
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
		l.client, l.all, l.raw = a.client, len(args) == 0, l.raw || !terminal.Is(os.Stdout)
		if l.all {
			l.follow = l.follow || !c.Flags().Changed("follow")
			names, err := l.everything(ctx, c.Flags().Changed("lines"))
			if err != nil {
				return err
			}
			args = names
		}
		captured, err := l.last(ctx, args)
		if err == nil && l.follow {
			err = l.followAll(ctx, captured)
		}
		return untilInterrupted(err)
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

// everything returns the names of all programs. With several programs each line gets the name of its program, and each
// program fewer lines, unless counted.
func (l *logging) everything(ctx context.Context, counted bool) ([]string, error) {
	st, err := l.client.Status(ctx, "", false)
	if err != nil {
		return nil, err
	}
	names := programNames(st)
	switch {
	case len(names) == 0 && !l.follow:
		return nil, errNoPrograms
	case len(names) > 1 && !counted:
		l.lines = 10
	}
	if len(names) > 1 {
		l.paint = terminal.Colors(os.Stdout)
		for _, name := range names {
			l.widest = max(l.widest, len(name))
		}
	}
	return names, nil
}

// last prints the last lines of these programs, in the order of time, and returns the programs whose output is
// captured: at least one, or an error.
func (l *logging) last(ctx context.Context, names []string) (captured []string, err error) {
	var lines []programEntry
	var without []string
	for _, name := range names {
		l.printed[name] = time.Now() // without past lines, those from now on follow
		bad := l.client.Logs(ctx, name, l.lines, false, func(e control.LogEntry) {
			lines = append(lines, programEntry{name, e})
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
		l.print(e.Program, e.LogEntry)
		l.printed[e.Program] = e.Time
	}
	return captured, nil
}

// notCaptured reports whether a program has no output to show, or has gone.
func notCaptured(err error) bool {
	refused, is := errors.AsType[*control.APIError](err)
	return is && (refused.Code == control.NotNow || refused.Code == control.NoProgram)
}

// followAll follows these programs, and with all others from their next event on, until ctx ends.
func (l *logging) followAll(ctx context.Context, names []string) error {
	if !l.all {
		return l.program(ctx, names[0])
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer l.readers.Wait()
	defer cancel(nil)
	begin := func(name string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.running[name] {
			return
		}
		l.running[name] = true
		l.readers.Go(func() {
			err := l.program(ctx, name)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.running[name] = false // its next event tries again
			if err != nil {
				cancel(err)
			}
		})
	}
	for _, name := range names {
		begin(name)
	}
	return control.Lasting(ctx, func(ctx context.Context) (bool, error) {
		return false, l.client.Events(ctx, "", func(u supervisor.Update) { begin(u.Program) })
	})
}

// overlap is how many lines are asked for of the past, of which those that were printed are left out: more than may
// come between two requests.
const overlap = 1000

// program follows one program, behind the last line that was printed, until its output is not captured any more.
func (l *logging) program(ctx context.Context, name string) error {
	err := control.Lasting(ctx, func(ctx context.Context) (bool, error) {
		l.mu.Lock()
		last := l.printed[name]
		l.mu.Unlock()
		return false, l.client.Logs(ctx, name, overlap, true, func(e control.LogEntry) {
			l.mu.Lock()
			defer l.mu.Unlock()
			switch {
			case e.LogLine == nil:
			case !e.Time.After(last):
				return
			default:
				l.printed[name] = e.Time
			}
			l.print(name, e)
		})
	})
	if notCaptured(err) {
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
