package unit

import (
	"example.org/supervisord/internal/convert/draft"
	"example.org/supervisord/internal/convert/source"
)

// container is what [Container] of a quadlet says: a unit that podman makes a service of (podman-systemd.unit(5)).
// supervisord runs its command on this machine.
type container struct {
	image      string
	entrypoint []invocation
	published  []draft.Published
}

// ofContainer are the keys of [Container].
func (x *service) ofContainer() draft.Rules {
	return draft.Keys(draft.Notes(keys, "Container"), draft.Rules{
		"Image": func(p *draft.Block, s source.Setting) {
			x.container.image = s.Value
			p.Lacks(s, "supervisord runs programs of this machine, not images: install it, and check the command and its paths")
		},
		"Exec":            x.exec(&x.commands),
		"Entrypoint":      x.exec(&x.container.entrypoint),
		"Environment":     x.environment,
		"EnvironmentFile": x.environmentFile,
		"PublishPort":     x.publishPort,
		"User":            draft.To("user", draft.AsAccount),
		"Group":           draft.To("group", draft.AsAccount),
		"WorkingDir":      x.directory,
		"StopSignal":      draft.To("stop.signal", draft.AsSignal),
		"StopTimeout":     draft.To("stop.timeout", asSpan(0.001)),
		"NoNewPrivileges": draft.To("limits.no_new_privileges", draft.AsTruth),
	})
}

// publishPort finds where clients come to.
func (x *service) publishPort(p *draft.Block, s source.Setting) {
	host, published, inside, protocol := draft.Port(s.Value)
	switch at, isPort := draft.Publish(host, published, inside); {
	case !isPort || protocol != "" && protocol != "tcp":
		p.Lacks(s, "write the address of each listener: [[program."+p.ProgramName+".listen]]")
	default:
		x.container.published = append(x.container.published, at)
	}
}

// inImage sets the command of a container.
func (x *service) inImage(s source.Setting) {
	if len(x.commands) > 0 {
		s, x.Run.Words = x.commands[len(x.commands)-1].Setting, x.commands[len(x.commands)-1].words
	}
	if n := len(x.container.entrypoint); n > 0 {
		x.Run.Words = append(append([]string{}, x.container.entrypoint[n-1].words...), x.Run.Words...)
	}
	x.InImage(s, x.container.image, len(x.container.entrypoint) > 0)
	x.commands = []invocation{{Setting: s, words: x.Run.Words}}
}
