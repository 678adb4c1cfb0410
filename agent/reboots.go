package agent

import (
	"time"

	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/reboots"
)

// openReboots takes up what is known of reboots, and which boot this is.
func (a *Agent) openReboots(reader *probe.Reader, machine probe.Machine) *reboots.Ledger {
	o := reboots.Options{
		Boot:    a.boot,
		Machine: reboots.Machine{ID: machine.MachineID, UUID: machine.SystemUUID},
		Journal: a.journal,
		Store:   a.kept,
		Log:     a.log,
	}
	if reader.ClockSet() {
		o.Began = time.Now().Add(-uptime())
	}
	return reboots.Open(o)
}
