package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"example.org/supervisord/internal/lab/systemd"
)

// flags are what the command line says.
type flags struct {
	length   time.Duration
	round    time.Duration
	seed     uint64
	rate     int
	suite    string
	setClock bool
	without  string
}

func (o *flags) flags(f *flag.FlagSet) {
	f.DurationVar(&o.length, "for", time.Hour, "how long")
	f.DurationVar(&o.round, "checkpoint", 5*time.Minute, "the time between two checkpoints at most")
	f.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano())%1_000_000_000,
		"what every event is drawn from (default: a new one)")
	f.IntVar(&o.rate, "rate", 2500, "requests per second, of all programs together")
	f.StringVar(&o.suite, "suite", "trixie", "the Debian release whose systemd runs")
	f.BoolVar(&o.setClock, "set-clock", false,
		"also set the clock back and forth. It is the machine's clock: everything on this machine sees the jumps")
	f.StringVar(&o.without, "without", "",
		"leave out these kinds of events, separated by commas: to find which one matters")
}

// arguments are the flags for the soak inside the lab.
func (o *flags) arguments() []string {
	return []string{
		"-for", o.length.String(), "-checkpoint", o.round.String(), "-seed", strconv.FormatUint(o.seed,
			10), "-rate", strconv.Itoa(o.rate),
		"-set-clock=" + strconv.FormatBool(o.setClock), "-without", o.without,
	}
}

// The first argument of the other two roles.
const (
	roleInside  = "inside"
	roleHostile = "hostile"
)

func main() {
	role, args := "", os.Args[1:]
	if len(args) > 0 && (args[0] == roleInside || args[0] == roleHostile) {
		role, args = args[0], args[1:]
	}
	var o flags
	f := flag.NewFlagSet("soak", flag.ExitOnError)
	o.flags(f)
	f.Parse(args) //nolint:errcheck // it exits
	var err error
	switch role {
	case roleInside:
		err = inside(&o)
	case roleHostile:
		attack(o.seed, o.length)
	default:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		err = outside(ctx, &o, os.Stdout)
	}
	if unable, ok := errors.AsType[systemd.UnableError](err); ok {
		fmt.Fprintln(os.Stderr, "soak: this machine cannot boot a systemd:", unable)
		os.Exit(77)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}
