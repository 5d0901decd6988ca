package lab

import "strings"

// Listener is another listener of the program web.
func Listener(address string) string {
	return "[[program.web.listen]]\naddress = \"" + address + "\"\n"
}

// WebAt is Web at a known address.
func WebAt(address string) string { return strings.Replace(Web, "127.0.0.1:0", address, 1) }

// PIDFile goes to the beginning of a configuration.
const PIDFile = "pid_file = \"{dir}/p.pid\"\n"

// Workers is Web with this many workers.
func Workers(n string) string { return strings.Replace(Web, "\n[[", "\nworkers = "+n+"\n[[", 1) }

// Hello is a program with the example worker, which drains as a worker should.
const Hello = `
[program.web]
command = [{hello}]
workers = 2
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
`

// Web is a program with one listener, whose worker says when it is ready. See behave for arguments of the worker.
const Web = `
[program.web]
command = [{worker}]
[[program.web.listen]]
name = "http"
address = "127.0.0.1:0"
[program.web.ready]
method = "notify"
`

// WebWith is Web with arguments of the worker: WebWith("boot=1s").
func WebWith(args ...string) string {
	return strings.Replace(Web, "{worker}", "{worker}, \""+strings.Join(args, "\", \"")+"\"", 1)
}

// TwoWorkers is Web with two workers.
var TwoWorkers = strings.Replace(Web, "\n[[", "\nworkers = 2\n[[", 1)

// Plain is a program that does nothing; more keys may follow.
const Plain = `
[program.web]
command = [{sleep}]
ready = { delay = "10ms", accepts = false }
`
