package proc

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Whatever a process calls itself, the rest of its line in /proc/PID/stat is read as it is, and a line that is accepted
// reads the same when it is written anew.
func FuzzStat(f *testing.F) {
	f.Add("a) S (b", "S 1 2 3 0 -1 4194560 1 2 3 4 100 50 0 0 20 0 9 0 700 8192 3 18446744073709551615\n")
	f.Add("", "Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 12345 0 0")
	f.Add("x", "S 1 2 3 0 -1 4194560 1 2 3 4 99999999999999 50 0 0 20 0 9 0 9223372036854775807 8192 9223372036854775807")
	f.Fuzz(func(t *testing.T, name, rest string) {
		if strings.Contains(rest, ")") {
			return
		}
		s, err := parseStat([]byte("7 (" + name + ") " + rest))
		plain, plainErr := parseStat([]byte("7 (a) " + rest))
		if s != plain || (err == nil) != (plainErr == nil) {
			t.Fatalf("with the name %q: %+v, %v; with another one %+v, %v", name, s, err, plain, plainErr)
		}
		if err != nil {
			return
		}
		again, err := parseStat(fmt.Appendf(nil, "%d () %s %d %d %d 0 -1 0 0 0 0 0 %d 0 0 0 20 0 1 0 %d %d %d", s.PID,
			[]byte{s.State}, s.Parent, s.Group, s.Session,
			s.CPU/tick, s.Began/tick, s.Virtual, s.Resident/int64(os.Getpagesize())))
		if again != s || err != nil {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
		if s.PID != 7 || s.CPU < 0 || s.Began < 0 || s.Resident < 0 {
			t.Errorf("%+v of %q", s, rest)
		}
	})
}

// What is found in the small files of /proc is in them, and what is written as the kernel writes it is found.
func FuzzProcFiles(f *testing.F) {
	f.Add("pos:\t0\nflags:\t02000002\nPid:\t4711\nNSpid:\t4711\n", uint32(4711))
	f.Add("cpu 1 2\nbtime 1700000000\nprocesses 1\n", uint32(7))
	f.Add("0::/../../system.slice\n", uint32(1))
	f.Add("12:cpu:/\n0::/a/../../b\n", uint32(1))
	f.Add("socket:[12]", uint32(0))
	f.Add("1 2 x -3\n 99999999999999999999\n", uint32(0))
	f.Fuzz(func(t *testing.T, text string, n uint32) {
		n = max(n, 1) // the process 0 is one in another namespace
		number := strconv.FormatUint(uint64(n), 10)
		for _, dir := range groupsIn(text) {
			if dir != "/sys/fs/cgroup" && !strings.HasPrefix(dir, "/sys/fs/cgroup/") {
				t.Errorf("the group %s is outside of the hierarchy", dir)
			}
		}
		for _, pid := range pidsIn(text) {
			if pid <= 0 {
				t.Errorf("found the PID %d", pid)
			}
		}
		if list := pidsIn(number + "\n" + number + " "); !slices.Equal(list, []int{int(n), int(n)}) {
			t.Errorf("%s twice is %v", number, list)
		}
		if at, err := bootIn("cpu 1\nbtime " + number + "\n" + text); err != nil || !at.Equal(time.Unix(int64(n), 0)) {
			t.Errorf("booted at %v, %v", at, err)
		}
		if inode, ok := SocketInode(text); ok &&
			strings.TrimLeft(text[len("socket:["):], "0") != strings.TrimPrefix(fmt.Sprintf("%d]", inode), "0") {
			t.Errorf("%q is socket %d", text, inode)
		}
	})
}

// An environment is read as getenv(3) reads it.
func FuzzEnviron(f *testing.F) {
	f.Add("A", "1", "A=2\x00nothing\x00B=")
	f.Fuzz(func(t *testing.T, name, value, rest string) {
		if strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return
		}
		all := parseEnviron([]byte(name + "=" + value + "\x00" + rest))
		if all[name] != value {
			t.Errorf("%s is %q instead of %q", name, all[name], value)
		}
		for name, value := range all {
			if !strings.Contains("\x00"+name+"="+value+"\x00"+rest+"\x00", "\x00"+name+"="+value+"\x00") ||
				strings.Contains(name, "=") {
				t.Errorf("found %q=%q", name, value)
			}
		}
	})
}
