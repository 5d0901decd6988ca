package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/control"
)

func upgradeCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	return a.command(&cobra.Command{
		Use: "upgrade", Short: "replace a running supervisord by the binary at its path",
		Long: `upgrade does what USR2 does: a running supervisord checks the binary that is now at its path, and lets it take over. upgrade waits
until the new supervisord answers: same PID, no socket closed, no worker touched. A broken binary is rejected by the check; one that
fails later rolls back to the old one. In both cases upgrade says why, and exits with 1.`,
	}, func(ctx context.Context, client *control.Client, _ []string) error {
		before, err := client.Status(ctx, "", false)
		if err != nil {
			return err
		}
		began := time.Now()
		var checked atomic.Bool
		live := newLive(os.Stderr, func(_ context.Context, now time.Time) []string {
			what := "the running supervisord checks the new binary"
			if checked.Load() {
				what = "waits for the new supervisord to answer"
			}
			return []string{fmt.Sprintf("%s, %s so far", what, seconds(now.Sub(began)))}
		})
		defer live.close()
		if err := client.Upgrade(ctx); err != nil {
			return err
		}
		checked.Store(true)
		now, err := client.AwaitImage(ctx, before)
		live.close()
		if err == nil {
			fmt.Printf("supervisord %s runs as PID %d\n", now.Version, now.PID)
		}
		return err
	})
}
