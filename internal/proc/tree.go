package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Children lists the children of a process, those of all its threads (proc_tid_children(5)). Zombies are among them. A kernel without
// CONFIG_PROC_CHILDREN has no such lists, and Children finds nothing.
func Children(pid int) []int {
	lists, _ := filepath.Glob(Path(pid, "task/*/children"))
	var pids []int
	for _, list := range lists {
		pids = append(pids, readPIDs(list)...)
	}
	return pids
}

// OwnChildren lists the children of the calling process that belong to its first thread. Orphans that a subreaper inherits are all
// among them: the kernel gives them to the first thread that lives, which in Go is the main thread.
func OwnChildren() []int {
	pid := os.Getpid()
	return readPIDs(Path(pid, "task/"+strconv.Itoa(pid)+"/children"))
}

// Descendants lists the children of a process, their children, and so on.
func Descendants(pid int) []int {
	var all []int
	for next := []int{pid}; len(next) > 0; {
		children := Children(next[0])
		all = append(all, children...)
		next = append(next[1:], children...)
	}
	return all
}

// readPIDs reads a list of numbers separated by white space; nothing if the file is not there.
func readPIDs(path string) []int {
	text, _ := os.ReadFile(path)
	return pidsIn(string(text))
}

func pidsIn(text string) (pids []int) {
	for word := range strings.FieldsSeq(text) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}
