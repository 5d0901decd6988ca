package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/control"
)

// switchTimeout is how long a new image may take until it answers.
const switchTimeout = 40 * time.Second

func upgradeCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	return a.command(&cobra.Command{
		Use: "upgrade", Short: "have a running supervisord replace itself by the binary at its path",
		Long: `upgrade does what USR2 does: a running supervisord tries the binary that is now at its path, and has it take over. upgrade waits until
the new image answers: same PID, no socket closed, no worker touched. A binary that is no good is refused, or gives the place
back; then it says why, and ends with 1.`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, client *control.Client, _ []string) error {
		before, err := client.Status(ctx, "", false)
		if err != nil {
			return err
		}
		if err := client.Upgrade(ctx); err != nil {
			return err
		}
		return awaitImage(ctx, client, before)
	})
}

// awaitImage waits until an image that began later answers, or the old one says why there is none.
func awaitImage(ctx context.Context, client *control.Client, before *control.Status) error {
	ctx, cancel := context.WithTimeoutCause(ctx, switchTimeout, errors.New("the new image does not answer: look into the log"))
	defer cancel()
	for {
		now, err := client.Status(ctx, "", false)
		switch {
		case err != nil && !recoverable(err, true):
			return err
		case err == nil && now.Upgrade != "":
			return errors.New("upgrade failed: " + now.Upgrade)
		case err == nil && now.Started.After(before.Started):
			fmt.Fprintf(os.Stdout, "supervisord %s goes on as PID %d\n", now.Version, now.PID)
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}
