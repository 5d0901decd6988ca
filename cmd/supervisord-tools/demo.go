package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/config"
	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/lab/process"
	"example.org/supervisord/internal/prove"
	"example.org/supervisord/internal/terminal"
	"example.org/supervisord/worker/bind"
	"example.org/supervisord/worker/graceful"
)

func demoCommand() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "show, in fifteen seconds, what a deploy costs with supervisord and without",
		Long: `demo needs no file: it starts a built-in service under supervisord, with the page, in a temporary
directory, sends it requests, and deploys it: by ordinary restarts, by reloads, and with a version that never gets
ready. Then it says what was lost.

On a terminal the service stays up until Ctrl-C, to look at the page and to try more. Nothing is left behind.`,
		RunE: func(*cobra.Command, []string) error {
			ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer cancel()
			d, err := startDemo(ctx)
			if err != nil {
				return err
			}
			defer d.end()
			return d.run(ctx, !once && terminal.Is(os.Stdin))
		},
	}
	c.Flags().BoolVar(&once, "once", false, "exit after the verdict: 0 if the reloads lost nothing, else 1")
	return c
}

// demo is a supervisord with two programs: web is reloaded, and ordinary is restarted as it would be without
// supervisord.
type demo struct {
	daemon, self        string // programs: supervisord, and this one
	dir, file           string
	page, web, ordinary string // addresses
	client              *control.Client
	supervisord         *process.Child
	paint               terminal.Palette
}

// neverReady makes a worker of the demo hang at its start.
const neverReady = "DEMO_NEVER_READY"

func startDemo(ctx context.Context) (*demo, error) {
	daemon, err := supervisord()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable() // which is the worker, too
	if err != nil {
		return nil, err
	}
	parent := os.TempDir()
	if len(parent) > 40 { // the path of a socket must be short
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "supervisord-demo-")
	if err != nil {
		return nil, err
	}
	d := &demo{daemon: daemon, self: self, dir: dir, file: filepath.Join(dir, "config.toml"),
		paint: terminal.Colors(os.Stdout)}
	err = freeAddresses(&d.page, &d.web, &d.ordinary)
	if err == nil {
		err = d.configure("")
	}
	if err == nil {
		d.client = control.NewClient(config.ControlSockets(d.file)...)
		d.client.Means(d.file)
		d.supervisord, err = prove.Start(ctx, []string{daemon, "run", "--config", d.file}, d.client)
	}
	if err != nil {
		d.end()
		return nil, err
	}
	return d, nil
}

// end stops supervisord and removes its files.
func (d *demo) end() {
	if d.supervisord != nil {
		d.supervisord.Stop(5 * time.Second)
	}
	if d.client != nil {
		d.client.Close()
	}
	os.RemoveAll(d.dir) //nolint:errcheck // it is a temporary directory
}

// freeAddresses finds free addresses. Port 0 would not do: the ordinary worker opens its port anew after each restart.
func freeAddresses(into ...*string) error {
	for _, address := range into {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer ln.Close()
		*address = ln.Addr().String()
	}
	return nil
}

// configure writes the configuration; version is what this version of web has in its table.
func (d *demo) configure(version string) error {
	return os.WriteFile(d.file, fmt.Appendf(nil, `[supervisor]
runtime_dir = %q
http = %q

# The worker opens its port as always.
[program.web]
command = [%q, "demo-worker", %q, %q]
workers = 2
bind = %[5]q
ready.method = "notify"
%[6]s
[[program.web.listen]]
name = "http"
address = %[4]q

# What a restart costs without supervisord: the same worker is stopped before the next one is started.
[program.ordinary]
command = [%[3]q, "demo-worker", %[7]q, "alone"]
ready.method = "notify"
reload.strategy = "stop-first"
`, d.dir, d.page, d.self, d.web, binding(), version, d.ordinary), 0o600)
}

// binding is how the worker gets its socket: in the place of its own, or where the machine does not allow that,
// inherited.
func binding() string {
	if bind.Try() == nil {
		return "on"
	}
	return "off"
}

func (d *demo) run(ctx context.Context, stay bool) error {
	fmt.Printf("supervisord demo: %d requests a second to a built-in service while it is deployed; about 15 seconds\n",
		demoRate)
	fmt.Printf("\n  the page shows every deploy as it happens: http://%s/\n\n", d.page)
	reasons, err := d.acts(ctx)
	if err != nil {
		return err
	}
	if len(reasons) > 0 {
		fmt.Printf("\n%s: %s\n", d.paint.Bad("FAILED"), strings.Join(reasons, "; "))
		return errFailed
	}
	fmt.Printf("\n%s: supervisord deployed three versions and rejected a broken one without losing a request\n",
		d.paint.Good("PASSED"))
	if stay {
		fmt.Printf(`
The service is still up at http://%s/. Deploy it yourself, and watch the page:
  %s reload -c %s web
For your own program: supervisord init, or supervisord convert FILE.
Ctrl-C ends the demo and removes its files.
`, d.web, d.daemon, d.file)
		select {
		case <-ctx.Done():
		case <-d.supervisord.Ended:
			return errors.New("the demo's supervisord has ended")
		}
	}
	return nil
}

// acts plays the demo, and returns what went wrong in it.
func (d *demo) acts(ctx context.Context) (reasons []string, err error) {
	fmt.Println("1. Two ordinary restarts: stop the old version, start the new one")
	if _, err = d.prove(ctx, "ordinary", d.ordinary, 2, 4*time.Second); err != nil {
		return nil, err
	}
	fmt.Println("2. Three reloads: the new version starts beside the old one")
	v, err := d.prove(ctx, "web", d.web, 3, 5*time.Second)
	if err != nil {
		return nil, err
	}
	reasons = v.Reasons
	fmt.Println("3. A reload with a version that never gets ready")
	if err := d.configure("ready.timeout = \"2s\"\nenvironment." + neverReady + ` = "yes"`); err != nil {
		return nil, err
	}
	if v, err = d.prove(ctx, "web", d.web, 1, 2*time.Second); err != nil {
		return nil, err
	}
	if v.Requests.Lost > 0 {
		reasons = append(reasons, v.Reasons...)
	}
	if i := slices.IndexFunc(v.Reloads, func(r prove.ReloadResult) bool { return r.Reason != "" }); i >= 0 {
		fmt.Printf("   rejected: %s; the version before keeps serving\n", v.Reloads[i].Reason)
	} else {
		reasons = append(reasons, "a version that never gets ready was not rejected")
	}
	return reasons, d.configure("")
}

// demoRate is how many requests a second the demo sends.
const demoRate = 200

// prove deploys a program under load and says what that cost.
func (d *demo) prove(ctx context.Context, program, address string, deploys int, took time.Duration) (*prove.Findings,
	error) {
	c, err := config.Load(d.file)
	if err != nil {
		return nil, err
	}
	v, err := prove.Run(ctx, prove.Plan{
		Config: c, Client: d.client, PID: d.supervisord.Cmd.Process.Pid, Program: program, URL: "http://" + address + "/",
		Rate: demoRate, Reloads: deploys, Duration: took, Timeout: 10 * time.Second, RoundTrip: 20 * time.Millisecond,
		Live: terminal.NewLines(os.Stderr, time.Second),
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	lost := d.paint.Good(fmt.Sprintf("%d of %d requests lost", v.Requests.Lost, v.Requests.Sent))
	if v.Requests.Lost > 0 {
		lost = d.paint.Bad(fmt.Sprintf("%d of %d requests lost", v.Requests.Lost, v.Requests.Sent))
	}
	fmt.Printf("   %s; the longest time without an answer was %.0f ms\n", lost, v.Gap.Length)
	return v, nil
}

// demoWorkerCommand is the hidden command that the demo runs as its service. It opens its port; after "off" it inherits
// it.
func demoWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo-worker ADDRESS on|off|alone", Short: "be the service of the demo", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if os.Getenv(neverReady) != "" {
				time.Sleep(time.Hour)
			}
			time.Sleep(300 * time.Millisecond)                                     // as an application loads its code
			listen, stop := net.Listen, graceful.Options{Linger: 10 * time.Second} // its clients may come back
			switch args[1] {
			case "off":
				listen = func(_, address string) (net.Listener, error) { return graceful.Listener("http", address) }
			case "alone":
				stop.Linger = 250 * time.Millisecond // nothing else serves, so waiting longer would cost more requests
			}
			ln, err := listen("tcp", args[0])
			if err != nil {
				return err
			}
			serve := func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(5 * time.Millisecond) // as an application asks its database
				fmt.Fprintf(w, "version %s, process %d\n", os.Getenv("SUPERVISORD_GENERATION"), os.Getpid())
			}
			server := &http.Server{Handler: http.HandlerFunc(serve), ReadHeaderTimeout: 10 * time.Second}
			return stop.Serve(context.Background(), graceful.HTTP(ln, server))
		},
	}
}
