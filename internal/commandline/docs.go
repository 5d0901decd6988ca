package commandline

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// DocsCommand writes the documentation that is generated from the commands, for scripts/install. exitStatus is the name
// of the help topic with all exit codes.
func DocsCommand(exitStatus string) *cobra.Command {
	docs := &cobra.Command{Use: "docs", Short: "write documentation", Hidden: true}
	docs.AddCommand(&cobra.Command{
		Use:   "man DIR",
		Short: "write the manual page into a directory",
		RunE: func(cmd *cobra.Command, args []string) error {
			var b strings.Builder
			writeManual(&b, cmd.Root(), exitStatus)
			return os.WriteFile(filepath.Join(args[0], cmd.Root().Name()+".1"), []byte(b.String()), 0o644)
		},
	})
	return docs
}
