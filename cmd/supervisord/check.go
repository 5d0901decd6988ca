package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.org/supervisord/internal/config"
)

func checkCommand(path *string) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "check the configuration: print what is wrong and where, or \"ok\"",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(*path)
			if err != nil {
				return err
			}
			for _, w := range c.Warnings {
				fmt.Fprintln(cmd.OutOrStdout(), "warning:", w)
			}
			for _, n := range slices.Concat(c.Shared(), c.Crowded()) {
				fmt.Fprintln(cmd.OutOrStdout(), "note:", n)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "ok")
			return nil
		},
	}
}
