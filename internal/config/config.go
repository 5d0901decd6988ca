// Package config turns TOML files into validated plain data. It decides nothing, and opens nothing but the files that
// it reads.
//
// Package document reads a file and its positions; the tables here name every key of supervisord once (program.go,
// listen.go, …). Package environment reads the files of variables that a configuration names. A function that needs
// several keys (its name ends in Fits) reports where the combination is written; the package that owns the matter says
// what it means: socket whether a listener can be steered or bound, ready what a check needs, bind whether bind(2) is
// answered, reach whether the worker in question would answer a probe.
// Every step reports all the problems that it finds, guesses nothing and ignores nothing.
package config

import (
	"syscall"
	"time"

	"example.org/supervisord/internal/config/document"
	"example.org/supervisord/socket"
	"example.org/supervisord/socket/dialect"
	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/output"
	"example.org/supervisord/worker/ready"
	"example.org/supervisord/worker/spawn"
)

// Config is a whole valid configuration.
type Config struct {
	Supervisor Settings
	Programs   []Program          // by name
	Files      []string           // every file that was read, absolute; the main one first
	Warnings   []document.Problem // what `check` reports although it is not an error
	positions  document.Positions // of the main file
}

// Settings is the [supervisor] table. All paths are absolute.
type Settings struct {
	PIDFile    string // "": see InstanceFile
	LogLevel   string // debug, info, warn, error
	LogFormat  string // auto, console, json
	Watch      bool
	Include    []string      // patterns
	RuntimeDir string        // for notify sockets
	StopDelay  time.Duration // how long everything keeps serving after TERM

	Control      string // path of the control socket; "": none
	ControlGroup string // who may change things beside root and the supervisor's own user: a name, a number, or ""
	ControlRead  string // who else may read: none, any

	HTTP          socket.Address // where the metrics and the page are; zero: nowhere
	HTTPTokenFile string         // "": the page can only be read
	// lower case; names by which a browser may ask for the page, beside those that are always allowed
	HTTPHosts []string
}

// Program is one [program.NAME] table. Every path in it is absolute. Nothing in it has been looked up yet: see package
// snapshot.
type Program struct {
	Name             string
	File             string // where it is written
	Line             int
	Command          Words
	Directory        string
	User, Group      string
	Workers          int      // "auto" is already a number
	After            []string // the programs that serve before its first start, and stop after it
	SuccessCodes     []int    // exit codes that are a success as 0 is; 128+N stands for a death by signal N, too
	Environment      map[string]string
	EnvironmentFiles []string // and folders, read again for every generation: see environment.Read
	Limits           spawn.Limits
	MaxMemory        uint64        // bytes that a worker and the processes below it may use; 0: any
	MaxAge           time.Duration // how long a worker may run; 0: forever
	StatusFile       string        // where its generations and PIDs are written; "": nowhere
	Stdout, Stderr   Output
	Watch            []string
	Listen           []socket.Spec
	positions        document.Positions
	Dialects         []dialect.Name // nil: the default; empty, but not nil: none
	Bind             bind.Mode      // whether a worker's bind(2) to a listener gets the listener
	Ready            Ready
	Reload           ReloadPolicy
	Drain            DrainPolicy
	Stop             StopPolicy
	Restart          Restart
	Hooks            Hooks
	Health           Health
	Log              LogPolicy
}

// Output is where a stream goes: Kind, and Path for output.ToFile.
type Output struct {
	Kind output.Kind
	Path string
}

// Ready is the [program.NAME.ready] table.
type Ready struct {
	ready.Check
	Timeout time.Duration
}

// Health is the [program.NAME.health] table: how a serving worker shows that it is healthy.
type Health struct {
	ready.Check               // the probe; without a Method there is none
	Timeout     time.Duration // of one probe
	Failures    int           // this many in a row make the worker unhealthy
	Watchdog    time.Duration // WATCHDOG=1 must come within it; 0: need not
}

// LogPolicy is the [program.NAME.log] table: the file for captured output. The zero LogPolicy means memory only.
type LogPolicy struct {
	File     string // "": none
	MaxSize  int64  // bytes, whole MiB
	MaxFiles int    // old files that are kept; 0: all
}

// Strategy is how a new generation takes over.
type Strategy string

// The strategies.
const (
	All       Strategy = "all"
	Rolling   Strategy = "rolling"
	StopFirst Strategy = "stop-first"
)

// ReloadPolicy is the [program.NAME.reload] table.
type ReloadPolicy struct {
	Strategy    Strategy
	MaxSurge    int
	Soak        time.Duration
	Preflight   []string
	Retry       time.Duration // a failed reload is tried again after this time, until one serves; 0: it is not
	Every       time.Duration // a program reloads when a generation has served for this time; 0: it does not
	MaxDraining int           // how many old generations may drain: the next reload waits; 0: any number
	// the old generation is not told to stop for so long, so that a rollback can bring it back; 0: it is
	Keep time.Duration
}

// DrainPolicy is the [program.NAME.drain] table: what happens between the moment when an old worker stops getting new
// connections and the first signal of its stop plan. It applies to workers whose listeners are steered.
type DrainPolicy struct {
	Timeout time.Duration // the signal waits at most so long for the worker to have nothing in hand; 0: it does not wait
	Silence time.Duration // an open connection is in hand until it was silent for so long
	Spread  time.Duration // the signals to several old workers are spread over this time
}

// StopStep is one step of a stop plan: a signal, then a wait for the end.
type StopStep struct {
	Signal syscall.Signal
	Wait   time.Duration // Forever: neither another step nor KILL follows
}

// Forever is a wait that has no end.
const Forever time.Duration = 0

// StopPolicy is the [program.NAME.stop] table. After the last step comes KILL to the process group.
type StopPolicy struct {
	Steps []StopStep
	Group bool // the signals of the steps go to the whole process group, not to the worker process alone

	// Sent instead of the first step's signal; 0: that.
	ReloadSignal syscall.Signal // to a worker whose successor is ready
	IntSignal    syscall.Signal // when INT stops supervisord
}

// When says after which exits a worker of the serving generation is started again.
type When string

// The restart policies.
const (
	Always    When = "always"
	OnFailure When = "on-failure"
	Never     When = "never"
)

// Restart is the [program.NAME.restart] table.
type Restart struct {
	When        When
	BackoffMin  time.Duration
	BackoffMax  time.Duration
	Budget      int           // further failures that are replaced without a wait
	StableAfter time.Duration // one of the budget comes back in each
	Generation  ReplacementPolicy
}

// ReplacementPolicy says where the replacement of a crashed worker comes from.
type ReplacementPolicy string

// The replacement policies.
const (
	Same ReplacementPolicy = "same" // a worker of the same generation, in its slot
	New  ReplacementPolicy = "new"  // a new generation
)

// Hooks is the [program.NAME.hooks] table: commands that supervisord runs when something has happened. It does not run
// an empty one.
type Hooks struct {
	AfterReload   []string
	ReloadFailed  []string
	WorkerCrashed []string
	Timeout       time.Duration // of each
}
