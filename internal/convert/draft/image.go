package draft

import (
	"path"
	"strconv"
	"strings"

	"example.org/supervisord/internal/convert/source"
	"example.org/supervisord/internal/servers"
)

// Port takes apart how docker and podman publish a port: [[HOST:]PUBLISHED:]INSIDE[/PROTOCOL]. Without PUBLISHED they
// choose one.
func Port(value string) (host, published, inside, protocol string) {
	value, protocol, _ = strings.Cut(value, "/")
	if i := strings.LastIndexByte(value, ':'); i >= 0 {
		published, inside = value[:i], value[i+1:]
	}
	if i := strings.LastIndexByte(published, ':'); i >= 0 {
		host, published = published[:i], published[i+1:]
	}
	return host, published, inside, protocol
}

// Publish returns where clients come to a published port. It reports whether published is a port.
func Publish(host, published, inside string) (Published, bool) {
	if n, err := strconv.Atoi(published); err != nil || n < 1 || n > 65535 {
		return Published{}, false
	}
	if host == "" {
		host = "0.0.0.0"
	}
	if strings.Contains(host, ":") && host[0] != '[' {
		host = "[" + host + "]"
	}
	if inside == "" {
		inside = published
	}
	return Published{Address: host + ":" + published, Port: inside}, true
}

// InImage comments the program out if its command, Run, is in an image, or may be, and not on this machine. entrypoint
// says that the source replaces the image's. Without an image ("") the command is that of this machine.
func (p *Block) InImage(s source.Setting, image string, entrypoint bool) {
	if len(p.Run.Words) == 0 || p.Run.Words[0] == "" {
		p.Off = true
		p.Lacks(s, "the command is in the image (docker image inspect shows Entrypoint and Cmd): write it, and remove the "+
			"# of these lines")
		p.Run.Words = []string{"COMMAND"}
		return
	}
	if image == "" && entrypoint {
		return
	}
	if _, known := servers.Recognize(p.Run.Words); known || image == "" {
		p.Note("", s, "an ENTRYPOINT of the image would come before it: docker image inspect")
		return
	}
	const write = ": write the command that runs on this machine, and remove the # of these lines"
	switch program := p.Run.Words[0]; {
	case !entrypoint:
		p.Off = true
		p.Lacks(s, "the image "+image+" may have an ENTRYPOINT, which comes before the command (docker image inspect)"+write)
	case path.IsAbs(program):
		if found, _ := p.Glob(program); len(found) == 0 {
			p.Off = true
			p.Lacks(s, program+" is in the image "+image+", and not on this machine"+write)
		}
	}
}
