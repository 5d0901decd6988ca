// Package unit converts units of systemd: a service, its drop-ins, and the sockets that it is started with.
package unit

import (
	"cmp"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/shell"
	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/pattern"
)

// file is a unit and its drop-ins.
type file struct {
	*draft.Draft
	*source.INI
	path string
	name // of the unit
}

// name is a unit's name in parts: getty@tty1.service has the prefix getty and the instance tty1.
type name struct{ whole, prefix, instance, kind string }

func nameOf(whole string) name {
	kind := path.Ext(whole)
	prefix, instance, _ := strings.Cut(strings.TrimSuffix(whole, kind), "@")
	return name{whole, prefix, instance, strings.TrimPrefix(kind, ".")}
}

// template returns the name of the unit's template, "" if it has none.
func (n name) template() string {
	if n.instance == "" || n.kind != "service" && n.kind != "socket" {
		return ""
	}
	return n.prefix + "@." + n.kind
}

// Template returns the path of the template of an instance, such as web@.service for web@1.service; "": the path names
// none.
func Template(file string) string {
	if template := nameOf(path.Base(file)).template(); template != "" {
		return filepath.Join(filepath.Dir(file), template)
	}
	return ""
}

// catHeader is the first line of `systemctl cat`.
var catHeader = pattern.Lazy(`(?m)^# (/\S+\.(?:service|socket))$`)

// Convert converts a unit: a service with its drop-ins and sockets, or a socket with its service. Text may also be the
// output of `systemctl cat`.
func Convert(d *draft.Draft) {
	own := d.Name
	if m := catHeader().FindStringSubmatch(d.Text); m != nil && path.Ext(own) == "" {
		own = m[1]
	}
	f := read(d, d.Name, own, d.Text)
	if strings.Contains(f.whole, "@.") {
		d.Wrong(source.Setting{At: source.Location{File: d.Name}}, "is a template",
			"name an instance: supervisord convert "+strings.Replace(own, "@.", "@NAME.", 1))
		return
	}
	service, sockets := f, []*file{f}
	switch both := f.ByName["Socket"] != nil && f.ByName["Service"] != nil; {
	case both: // systemctl cat foo.service foo.socket
	case f.kind == "socket" || f.ByName["Socket"] != nil:
		service = f.service()
	default:
		sockets = f.sockets()
	}
	if service != nil && len(d.Problems) == 0 {
		service.convert(sockets)
	}
}

// read reads a unit and its drop-ins.
func read(d *draft.Draft, shown, whole, text string) *file {
	f := &file{Draft: d, INI: source.NewUnit(), path: whole, name: nameOf(path.Base(whole))}
	f.Parse(shown, text)
	for _, base := range []string{f.template(), f.whole} {
		for _, dir := range f.directories() {
			if found, err := d.Glob(path.Join(dir, base+".d", "*.conf")); base != "" && err == nil {
				for _, dropIn := range found {
					if text, ok := d.ReadText(source.Setting{At: source.Location{File: dropIn}}, dropIn); ok {
						f.Parse(dropIn, text)
					}
				}
			}
		}
	}
	d.Problems = append(d.Problems, f.INI.Problems...)
	f.INI.Problems = nil
	for _, s := range f.Sections {
		override(s)
	}
	return f
}

// directories are those of the unit's drop-ins: its own, and those of the administrator for a unit of a package.
func (f *file) directories() []string {
	if strings.Contains(f.Dir, "/lib/systemd/") {
		return []string{f.Dir, "/etc/systemd/system", "/run/systemd/system"}
	}
	return []string{f.Dir}
}

// lists are the keys that hold several values, so that a second one adds to the first (systemd.exec(5), systemd.unit(5)
// and so on); an empty one removes those before it. Of other keys the last counts.
var lists = strings.Fields(`
	ExecStart ExecStartPre ExecStartPost ExecReload ExecStop ExecStopPre ExecStopPost ExecCondition Sockets
	Environment EnvironmentFile PassEnvironment UnsetEnvironment
	SupplementaryGroups AmbientCapabilities CapabilityBoundingSet
	SuccessExitStatus RestartPreventExitStatus RestartForceExitStatus
	ListenStream ListenDatagram ListenSequentialPacket ListenFIFO ListenSpecial ListenNetlink ListenMessageQueue
	ListenUSBFunction Symlinks
	Documentation Alias Also WantedBy RequiredBy UpheldBy
	ReadWritePaths ReadOnlyPaths InaccessiblePaths ExecPaths NoExecPaths BindPaths BindReadOnlyPaths
	TemporaryFileSystem
	ReadWriteDirectories ReadOnlyDirectories InaccessibleDirectories ExtensionImages ExtensionDirectories
	MountImages RootImageOptions
	RuntimeDirectory StateDirectory CacheDirectory LogsDirectory ConfigurationDirectory
	SystemCallFilter SystemCallArchitectures SystemCallLog RestrictAddressFamilies RestrictFileSystems
	RestrictNamespaces RestrictNetworkInterfaces
	SocketBindAllow SocketBindDeny IPAddressAllow IPAddressDeny IPIngressFilterPath IPEgressFilterPath BPFProgram
	NFTSet DeviceAllow
	IODeviceWeight IOReadBandwidthMax IOWriteBandwidthMax IOReadIOPSMax IOWriteIOPSMax IODeviceLatencyTargetSec
	DisableControllers
	LoadCredential LoadCredentialEncrypted SetCredential SetCredentialEncrypted ImportCredential
	LogExtraFields LogFilterPatterns OpenFile CPUAffinity NUMAMask
	PublishPort ExposeHostPort Volume Mount Tmpfs Secret Network NetworkAlias DNS DNSOption DNSSearch AddHost
	AddCapability DropCapability AddDevice
	Sysctl Ulimit GroupAdd Label Annotation LogOpt PodmanArgs GlobalArgs ContainersConfModule Mask Unmask`)

// relations are lists of other units, which an empty value does not clear.
var relations = strings.Fields(
	"After Before Wants Requires Requisite BindsTo PartOf Upholds Conflicts OnFailure OnSuccess PropagatesReloadTo " +
		"ReloadPropagatedFrom PropagatesStopTo StopPropagatedFrom JoinsNamespaceOf RequiresMountsFor WantsMountsFor")

// accumulates reports whether a second value of a key adds to the first.
func accumulates(key string) bool {
	condition := strings.HasPrefix(key, "Condition") || strings.HasPrefix(key, "Assert")
	return condition || slices.Contains(lists, key) || slices.Contains(relations, key)
}

// override determines which of equal keys count.
func override(s *source.Section) {
	before := map[string][]*source.Item{}
	for _, e := range s.Entries {
		if list := accumulates(e.Key); !list || e.Value == "" && !slices.Contains(relations, e.Key) {
			for _, old := range before[e.Key] {
				old.Over = &e.At
			}
			before[e.Key] = nil
			if list {
				continue
			}
		}
		before[e.Key] = append(before[e.Key], e)
	}
}

// another reads another unit of the same directory.
func (f *file) another(s source.Setting, whole string, needed bool) *file {
	n := nameOf(whole)
	for _, base := range []string{whole, n.template()} {
		at := f.Path(base)
		text, err := f.Read(at)
		if base == "" || err != nil {
			continue
		}
		if err := source.CheckText(source.Location{File: at}, text); err != nil {
			f.Wrong(s, "cannot read "+at+": "+err.Error(), "make it a readable text file")
			return nil
		}
		return read(f.Draft, at, filepath.Join(f.Dir, whole), text)
	}
	if needed {
		f.Wrong(s, "needs "+whole+", which is not in "+f.Dir, "convert them from one directory")
	}
	return nil
}

// service returns the service of a socket.
func (f *file) service() *file {
	s := source.Setting{At: source.Location{File: f.Name}}
	whole := strings.TrimSuffix(f.whole, ".socket") + ".service"
	if socket := f.ByName["Socket"]; socket != nil {
		if named, ok := socket.Get("Service"); ok {
			s, whole = named, named.Value
		} else if accept, ok := socket.Get("Accept"); ok {
			if on, _ := f.Truth(accept); on {
				whole = f.prefix + "@0.service"
			}
		}
	}
	return f.another(s, whole, true)
}

// sockets returns the sockets of a service.
func (f *file) sockets() (all []*file) {
	names := []string{strings.TrimSuffix(f.whole, ".service") + ".socket"}
	var s source.Setting
	if service := f.ByName["Service"]; service != nil {
		for _, named := range service.Counting() {
			if named.Key == "Sockets" && named.Value != "" {
				s, names = named, strings.Fields(named.Value)
			}
		}
	}
	for _, whole := range names {
		if other := f.another(s, whole, s.Key != ""); other != nil {
			all = append(all, other)
		}
	}
	return all
}

// specifiers expands what systemd writes after a percent sign. One that only systemd knows has no equivalent.
func (f *file) specifiers(p *draft.Block, s source.Setting) (source.Setting, bool) {
	var b strings.Builder
	for i := 0; i < len(s.Value); i++ {
		if s.Value[i] != '%' {
			b.WriteByte(s.Value[i])
			continue
		}
		if i++; i == len(s.Value) {
			p.Wrong(s, "ends with a percent sign", "write %% for one")
			return s, false
		}
		value, ok := f.specifier(s.Value[i])
		if !ok {
			p.Lacks(s, "%"+s.Value[i:i+1]+" is known to systemd only: write its value")
			return s, false
		}
		b.WriteString(value)
	}
	if s.Text == "" && b.String() != s.Value {
		s.Text = s.String()
	}
	s.Value = b.String()
	return s, true
}

// specifier returns what stands for a letter after a percent sign, as in a unit of the system.
func (f *file) specifier(letter byte) (string, bool) {
	switch letter {
	case '%':
		return "%", true
	case 'n':
		return f.whole, true
	case 'N':
		return strings.TrimSuffix(f.whole, "."+f.kind), true
	case 'p', 'P':
		return unescaped(f.prefix, letter == 'P'), true
	case 'i', 'I':
		return unescaped(f.instance, letter == 'I'), true
	case 'j':
		return f.prefix[strings.LastIndexByte(f.prefix, '-')+1:], true
	case 'f':
		return "/" + unescaped(cmp.Or(f.instance, f.prefix), true), true
	case 'H', 'q':
		return f.Host, true
	case 'l':
		short, _, _ := strings.Cut(f.Host, ".")
		return short, true
	}
	value, ok := map[byte]string{'t': "/run", 'S': "/var/lib", 'C': "/var/cache", 'L': "/var/log", 'E': "/etc",
		'T': "/tmp", 'V': "/var/tmp", 'h': "/root", 'u': "root",
		'U': "0", 'g': "root", 'G': "0"}[letter]
	return value, ok
}

// unescaped undoes systemd-escape(1).
func unescaped(s string, really bool) string {
	if !really {
		return s
	}
	var b strings.Builder
	s = strings.ReplaceAll(s, "-", "/")
	for i := 0; i < len(s); i++ {
		if value, n := escape(s[i:]); n > 1 && strings.HasPrefix(s[i:], `\x`) {
			b.WriteString(value)
			i += n - 1
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// variable is a variable in a command of systemd.
var variable = pattern.Lazy(`\$(?:\$|\{(\w+)\}|(\w+))`)

// expanded replaces the variables in a word of a command, which systemd expands without a shell: ${NAME} anywhere in
// one word, $NAME only as a word of its own, which may become several.
func expanded(word string) string {
	return variable().ReplaceAllStringFunc(word, func(v string) string {
		switch {
		case v == "$$":
			return "$"
		case strings.HasPrefix(v, "${"):
			return shell.Part(shell.Quoted, v)
		case v == word:
			return shell.Part(shell.Unquoted, v)
		}
		return v
	})
}
