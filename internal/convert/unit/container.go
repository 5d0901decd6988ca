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
	const restricts = "supervisord does not restrict programs: set it in the unit of supervisord, where it holds for " +
		"all of them"
	const network = "programs share the network of this machine: services find each other at 127.0.0.1"
	health := draft.None("write health.method = \"exec\" with health.command, health.interval and health.timeout")
	return draft.Keys(draft.Rules{
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
		"HealthCmd HealthInterval HealthTimeout HealthRetries HealthStartPeriod HealthOnFailure":                health,
		"HealthStartupCmd HealthStartupInterval HealthStartupTimeout HealthStartupRetries HealthStartupSuccess": health,
		"Volume Mount Tmpfs Secret Rootfs ReadOnly ReadOnlyTmpfs Mask Unmask": draft.None(
			"the program sees the files of this machine: let it use their paths here"),
		"Network NetworkAlias IP IP6 DNS DNSOption DNSSearch AddHost ExposeHostPort HostName Pod": draft.None(
			network),
		"AddCapability DropCapability AddDevice SecurityLabelDisable SecurityLabelType SeccompProfile AppArmor Sysctl " +
			"UserNS PidsLimit": draft.None(restricts),
		"Memory ShmSize CgroupsMode": draft.None(
			"set it in the unit of supervisord, whose control group holds all programs; limits.max_memory replaces a worker, " +
				"with overlap"),
		"Ulimit": draft.None("write it in limits, such as limits.nofile"),
		"GroupAdd": draft.None(
			"supervisord gives a program the groups that its user has: usermod -aG GROUP USER"),
		"Notify":           draft.None("if the program reports READY=1 itself: ready.method = \"notify\""),
		"LogDriver LogOpt": draft.None("stdout = \"capture\" and [program.NAME.log] keep and rotate the output"),
		"PodmanArgs GlobalArgs ContainersConfModule Timezone": draft.None(
			"only podman has it"),
		"ContainerName Label Annotation AutoUpdate Pull RunInit ServiceName StartWithPod Retry RetryDelay": draft.Unneeded(
			"there is no container"),
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
