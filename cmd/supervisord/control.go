package main

import (
	"go.uber.org/zap"

	"example.org/supervisord/internal/control"
	"example.org/supervisord/internal/observe"
)

// controlFD is the name under which the control socket is handed over.
const controlFD = "control"

// serveControl answers on the control socket. That this cannot be done is logged, and no reason not to run: a service must
// not fail for want of its remote control.
func (d *master) serveControl(o *observe.Observer) {
	inherited := d.handover.Extra(controlFD)
	if d.settings.Control == "" {
		control.Abandon(inherited)
		return
	}
	server, err := control.Serve(control.Options{
		Path: d.settings.Control, Other: d.settings.OwnControl(d.path), Config: d.path, Mode: d.settings.ControlMode, Inherited: inherited,
		Access: control.Access{Group: d.settings.ControlGroup, Read: d.settings.ControlRead == "any"},
		Asker:  d.supervisor, Log: d.log, Version: version(), Gauge: d.gauge, Receipts: o.Receipts,
	})
	if err != nil {
		d.log.Error("no control socket: `supervisord reload` and `status` cannot reach this supervisord", zap.Error(err))
		return
	}
	d.control = server
}

func (d *master) closeControl() {
	if d.control == nil {
		return
	}
	if err := d.control.Close(); err != nil {
		d.log.Error("cannot close the control socket", zap.Error(err))
	}
}
