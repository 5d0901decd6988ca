package diag

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Counters returns counters of this network namespace, by their names in the line TcpExt of /proc/net/netstat (proc_pid_net(5)).
func Counters(names ...string) ([]int64, error) {
	text, err := os.ReadFile("/proc/net/netstat")
	if err != nil {
		return nil, err
	}
	return parseNetstat(string(text), names)
}

// parseNetstat reads pairs of lines: the names, then the values, both after the same first word.
func parseNetstat(text string, wanted []string) (found []int64, err error) {
	_, text, known := strings.Cut("\n"+text, "\nTcpExt:")
	first, text, _ := strings.Cut(text, "\n")
	second, _, _ := strings.Cut(strings.TrimPrefix(text, "TcpExt:"), "\n")
	names, values := strings.Fields(first), strings.Fields(second)
	for _, name := range wanted {
		i := slices.Index(names, name)
		if !known || i < 0 || i >= len(values) {
			return nil, fmt.Errorf("/proc/net/netstat has no %s", name)
		}
		n, err := strconv.ParseInt(values[i], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("/proc/net/netstat: %s: %w", name, err)
		}
		found = append(found, n)
	}
	return found, nil
}
