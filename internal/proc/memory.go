package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// MemoryOfTree returns what a process and its descendants use, in bytes. Resident memory (RSS) costs little to read but counts a shared page
// once for each process. So the proportional share (PSS) is read, and returned instead, only if the resident memory is more than limit.
// PSS can be delayed by the process: see the package comment. The error is about pid itself: it may have ended.
func MemoryOfTree(pid int, limit uint64) (uint64, error) {
	used, err := resident(pid)
	if err != nil {
		return 0, err
	}
	tree := Descendants(pid)
	for _, p := range tree {
		n, _ := resident(p) // 0: it has ended
		used += n
	}
	if used <= limit {
		return used, nil
	}
	used = 0
	for _, p := range append(tree, pid) {
		used += proportional(p)
	}
	return used, nil
}

// resident reads the RSS of a process (proc_pid_statm(5)).
func resident(pid int) (uint64, error) {
	text, err := os.ReadFile(Path(pid, "statm"))
	if err != nil {
		return 0, err
	}
	return residentIn(text)
}

func residentIn(statm []byte) (bytesUsed uint64, err error) {
	words := bytes.Fields(statm)
	if len(words) < 2 {
		return 0, nil
	}
	pages, err := strconv.ParseUint(string(words[1]), 10, 48)
	return pages * uint64(os.Getpagesize()), err
}

// proportional reads the PSS of a process (proc_pid_smaps(5)), or its RSS where reading the PSS is not allowed.
func proportional(pid int) uint64 {
	file, err := os.Open(Path(pid, "smaps_rollup"))
	if err == nil {
		defer file.Close()
		if n, found := proportionalIn(file); found {
			return n
		}
	}
	n, _ := resident(pid)
	return n
}

func proportionalIn(smaps io.Reader) (bytesUsed uint64, found bool) {
	for s := bufio.NewScanner(smaps); s.Scan(); {
		words := bytes.Fields(s.Bytes())
		if len(words) < 2 || string(words[0]) != "Pss:" {
			continue
		}
		if kilobytes, err := strconv.ParseUint(string(words[1]), 10, 54); err == nil {
			return kilobytes << 10, true
		}
	}
	return 0, false
}

// UnmapBinary gives back the pages of this process's own program file, code and read-only data, that it has touched so far. They stay in
// the page cache, and the kernel maps those that are used again, sixteen at a time (madvise(2), MADV_DONTNEED on a private file mapping).
func UnmapBinary() error {
	areas, err := binary()
	if err != nil {
		return err
	}
	for _, a := range areas {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, a.begin, a.end-a.begin, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

// area is a part of the address space.
type area struct{ begin, end uintptr }

// binary finds where the program file is mapped read-only, which never changes.
var binary = sync.OnceValues(func() (areas []area, err error) {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		var a area
		var access string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &a.begin, &a.end, &access); n == 3 && !strings.Contains(access, "w") && strings.HasSuffix(line, " "+path+"\n") {
			areas = append(areas, a)
		}
	}
	return areas, nil
})
