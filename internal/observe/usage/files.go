package usage

import (
	"maps"
	"sync"
	"time"

	"example.org/supervisord/internal/foreign"
	"example.org/supervisord/supervisor"
	"example.org/supervisord/worker/spawn"
)

// filesTimeout is how long the disks of all executables may take; what is not known by then is not shown.
const filesTimeout = 500 * time.Millisecond

// fileLooks look at the files that generations execute. A file on a disk that hangs is looked at once, until that answers.
type fileLooks struct {
	mu    sync.Mutex
	looks map[spawn.File]*fileLook // the last ones
}

// fileLook is one look at a file.
type fileLook struct {
	done   chan struct{}
	change spawn.Change // when done is closed
}

// fill fills in which files have changed.
func (f *fileLooks) fill(st *supervisor.Status) {
	looks, timeout := f.begin(st), time.NewTimer(filesTimeout)
	defer timeout.Stop()
	for _, l := range looks {
		select {
		case <-l.done:
			continue
		case <-timeout.C:
		}
		break
	}
	for g := range generations(st) {
		for i, file := range g.Files {
			select {
			case <-looks[file].done:
				if change := looks[file].change; change != "" {
					kept := i == len(g.Files)-1 && g.ByPath == "" && change != spawn.Written
					g.Changed = append(g.Changed, supervisor.ChangedFile{Path: file.Path, Change: change, Kept: kept})
				}
			default:
			}
		}
	}
}

// begin begins a look at each file.
func (f *fileLooks) begin(st *supervisor.Status) map[spawn.File]*fileLook {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looks == nil {
		f.looks = map[spawn.File]*fileLook{}
	}
	maps.DeleteFunc(f.looks, func(_ spawn.File, l *fileLook) bool { return l.ended() })
	looks := map[spawn.File]*fileLook{}
	for g := range generations(st) {
		for _, file := range g.Files {
			l := f.looks[file]
			if l == nil {
				l = &fileLook{done: make(chan struct{})}
				go foreign.Apart(func() { // nobody can wait for it
					l.change = file.Change()
					close(l.done)
				})
			}
			f.looks[file], looks[file] = l, l
		}
	}
	return looks
}

func (l *fileLook) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func generations(st *supervisor.Status) func(yield func(*supervisor.GenerationStatus) bool) {
	return func(yield func(*supervisor.GenerationStatus) bool) {
		for i := range st.Programs {
			for j := range st.Programs[i].Generations {
				if !yield(&st.Programs[i].Generations[j]) {
					return
				}
			}
		}
	}
}
