package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIncludePatternThatWalksOverTheDiskIsRefused(t *testing.T) {
	dir := files(t, map[string]string{"c.toml": "[supervisor]\ninclude = [\"x" + strings.Repeat("/*", 20) + ".toml\"]\n" +
		minimal})
	if err := os.Mkdir(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"a", "b", "c"} { // each directory contains itself three times
		if err := os.Symlink(".", filepath.Join(dir, "x", link)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Load(filepath.Join(dir, "c.toml"))
	if err == nil || !strings.Contains(withoutColumns(err), "c.toml:2: supervisor.include[0]: ") ||
		!strings.Contains(err.Error(),
			"looks into more than 100000 folders and files: write a pattern with fewer * in the folders") {
		t.Errorf("got %v", err)
	}
}
