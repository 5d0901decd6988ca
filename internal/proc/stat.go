package proc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stat is what /proc/PID/stat says about a process (proc_pid_stat(5)).
type Stat struct {
	PID, Parent    int
	Group, Session int
	State          byte          // R, S, D, Z, …
	CPU            time.Duration // user and system time, including that of threads that have ended
	Began          time.Duration // since the machine was booted; tells a process from a later one with the same PID
	Virtual        int64         // bytes
	Resident       int64         // bytes; a page that several processes share counts for each
}

// Dead reports whether the process has ended and only waits to be reaped.
func (s Stat) Dead() bool { return s.State == 'Z' || s.State == 'X' }

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 wherever Go runs.
const tick = time.Second / 100

// ReadStat reads /proc/PID/stat.
func ReadStat(pid int) (Stat, error) {
	line, err := os.ReadFile(Path(pid, "stat"))
	if err != nil {
		return Stat{}, err
	}
	return parseStat(line)
}

// Stats reads /proc/PID/stat of every process that can be seen.
func Stats() []Stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	buf := make([]byte, 4096) // one for all: there may be thousands of processes
	var all []Stat
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		if s, err := parseStat(readAt(int(dir.Fd()), name+"/stat", buf)); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// readAt reads a small file; nil if it cannot be read.
func readAt(dir int, name string, buf []byte) []byte {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// statBits are the fields that are read, and their sizes with the sign: ppid, pgrp, session (the last two are -1 while the process is
// being reaped), utime, stime, starttime, vsize, rss. More bits would overflow what is made of them.
var statBits = map[int]int{1: 32, 2: 32, 3: 32, 11: 39, 12: 39, 19: 39, 20: 64, 21: 48}

func parseStat(line []byte) (Stat, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')') // the name between them may contain anything
	if open < 1 || end < open {
		return Stat{}, errors.New("not a line of /proc/PID/stat: the name is missing")
	}
	fields := bytes.Fields(line[end+1:]) // from field 3 on
	if len(fields) < 22 || len(fields[0]) != 1 {
		return Stat{}, errors.New("not a line of /proc/PID/stat: it is too short")
	}
	var values [22]int64
	for i, bits := range statBits {
		n, err := strconv.ParseInt(string(fields[i]), 10, bits)
		if err != nil || n < 0 && i > 3 {
			return Stat{}, fmt.Errorf("field %d of /proc/PID/stat is %q: %w", i+3, fields[i], cmp.Or(err, strconv.ErrRange))
		}
		values[i] = n
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(line[:open])))
	return Stat{
		PID: pid, Parent: int(values[1]), Group: int(values[2]), Session: int(values[3]), State: fields[0][0],
		CPU: time.Duration(values[11]+values[12]) * tick, Began: time.Duration(values[19]) * tick,
		Virtual: values[20], Resident: values[21] * int64(os.Getpagesize()),
	}, err
}

// BootTime returns when the machine was booted, to the second.
func BootTime() (time.Time, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	return bootIn(string(text))
}

func bootIn(text string) (time.Time, error) {
	_, rest, _ := strings.Cut(text, "\nbtime ")
	line, _, _ := strings.Cut(rest, "\n")
	seconds, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("btime in /proc/stat: %w", err)
	}
	return time.Unix(seconds, 0), nil
}
