package main

import "example.org/supervisord/internal/observe"

// pageFD is the name under which the socket of the page is handed over.
const pageFD = "page"

// observe begins to follow the supervisor, which need not run yet.
func (d *master) observe() *observe.Observer {
	return observe.Start(observe.Options{
		Asker: d.supervisor, Updates: d.updates, Runner: d.launcher, Log: d.log, Version: version(), Gauge: d.gauge, HTTP: d.settings.HTTP, Hosts: d.settings.HTTPHosts, TokenFile: d.settings.HTTPTokenFile,
		Inherited: d.handover.Extra(pageFD),
	})
}
