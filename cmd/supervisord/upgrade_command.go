package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"supervisord/internal/control"
)

// upgradeTimeout is longer than a supervisord tries its new binary for.
const upgradeTimeout = 40 * time.Second

func upgradeCommand(path *string) *cobra.Command {
	a := &asking{path: path}
	return a.command(&cobra.Command{
		Use: "upgrade", Short: "have a running supervisord replace itself by the binary at its path",
		Long: "upgrade sends USR2 to a running supervisord, and waits until the new image answers in its place: same PID, no socket\n" +
			"closed, no worker touched. A binary that is no good is refused, or gives the place back; the log says why.",
		Args: cobra.NoArgs,
	}, func(ctx context.Context, client *control.Client, _ []string) error {
		before, err := client.Status(ctx, "", false)
		if err != nil {
			return err
		}
		if err := syscall.Kill(before.PID, syscall.SIGUSR2); err != nil {
			return fmt.Errorf("cannot send USR2 to supervisord (PID %d): %w", before.PID, err)
		}
		return awaitImage(ctx, client, before)
	})
}

// awaitImage waits until an image that began later answers.
func awaitImage(ctx context.Context, client *control.Client, before *control.Status) error {
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("the image is still the old one: its log says why the new binary was refused")
		}
		now, err := client.Status(ctx, "", false)
		if err == nil && now.PID == before.PID && now.Started.After(before.Started) {
			return reportImage(now.PID)
		}
	}
}

// reportImage tells whether the image that goes on is that of the file at its path, or the old one, which has its place back.
func reportImage(pid int) error {
	link := fmt.Sprintf("/proc/%d/exe", pid)
	path, err := os.Readlink(link)
	if err != nil {
		return fmt.Errorf("supervisord goes on, but which binary it is cannot be seen: %w", err)
	}
	image, err := os.Stat(link)
	if err != nil {
		return err
	}
	if file, err := os.Stat(strings.TrimSuffix(path, " (deleted)")); err != nil || !os.SameFile(image, file) {
		return errors.New("the new binary could not go on; the old one is back, and its log says why")
	}
	fmt.Fprintf(os.Stdout, "the new binary goes on as PID %d\n", pid)
	return nil
}
