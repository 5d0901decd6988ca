// Queue is a worker without sockets. It takes jobs from a directory: a file NAME.job says how long the job takes
// ("2s"). The worker claims it by renaming it to NAME.PID, and renames it to NAME.done at the end. After a stop it
// finishes its job and takes no other. Because a claim is a rename, two generations can work side by side.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.org/supervisord/worker/graceful"
)

type spool struct {
	dir  string
	look time.Duration
}

func main() {
	q := spool{}
	flag.StringVar(&q.dir, "spool", "spool", "the directory of jobs; made if it is missing")
	flag.DurationVar(&q.look, "look", 100*time.Millisecond, "how often to look for a job when there is none")
	flag.Parse()
	log.SetFlags(0)
	if err := os.MkdirAll(q.dir, 0o755); err != nil {
		log.Fatal("queue: ", err)
	}
	if err := graceful.Serve(context.Background(), graceful.Work(q.run)); err != nil {
		log.Fatal("queue: ", err)
	}
}

// run does one job after the other until ctx ends.
func (q *spool) run(ctx context.Context) error {
	for ctx.Err() == nil {
		job, err := q.claim()
		switch {
		case err != nil:
			return err
		case job != "":
			if err := do(job); err != nil {
				return err
			}
		default:
			wait(ctx, q.look)
		}
	}
	return nil
}

// claim claims a job and returns its file; "" if there is none.
func (q *spool) claim() (string, error) {
	jobs, err := filepath.Glob(filepath.Join(q.dir, "*.job"))
	if err != nil {
		return "", err
	}
	for _, job := range jobs {
		claimed := strings.TrimSuffix(job, "job") + fmt.Sprint(os.Getpid())
		err := os.Rename(job, claimed)
		if err == nil {
			return claimed, nil
		}
		if !errors.Is(err, fs.ErrNotExist) { // another worker was quicker
			return "", err
		}
	}
	return "", nil
}

// do does the job to its end, also after a stop.
func do(job string) error {
	text, err := os.ReadFile(job)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		log.Printf("queue: %s: %v", job, err)
	}
	wait(context.Background(), d)
	return os.Rename(job, strings.TrimSuffix(job, filepath.Ext(job))+".done")
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
