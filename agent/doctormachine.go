package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/probe"
)

// look takes into the facts of doctor what is measured now: the machine, its filesystems,
// and what of runtimes goes on request. A runtime that does not answer in time is told by
// another check.
func (a *Agent) look(ctx context.Context, f *doctor.Facts) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	facts, err := a.survey.Facts(ctx, gc.Options{Images: true})
	f.Collection = a.collection(facts)
	var places []runtime.Filesystem
	for _, u := range facts.Filesystems {
		places = append(places, u.Filesystem)
	}
	f.Machine = machineFacts(a.facts.Machine(), a.facts.Measure(ctx, places), a.nodeOptions())
	if err != nil {
		f.Machine.ImagesUntold = err.Error()
	}
	for _, fs := range gc.Plan(facts, a.gcPolicy(), time.Now(), gc.Options{Images: true}).Filesystems {
		f.Machine.ImageFilesystems = append(f.Machine.ImageFilesystems, fs.FilesystemStatus)
	}
	if mine, _, _ := a.owners.Mine(owner.ImageGC); mine && len(a.leftAlone(a.config().ImageGC.Enabled)) == 0 {
		f.Machine.HighPercent, f.Machine.LowPercent = a.config().ImageGC.HighThresholdPercent, a.config().ImageGC.LowThresholdPercent
	}
}

// lookAlone does so on a host whose agent does not answer, and asks no runtime.
func lookAlone(ctx context.Context, cfg config.Config) (doctor.Machine, error) {
	machine, now, policies, err := measureAlone(ctx, cfg)
	if err != nil {
		return doctor.Machine{}, err
	}
	return machineFacts(machine, now, policies.node), nil
}

// measureAlone is what this host has, and what a configuration wants of it.
func measureAlone(ctx context.Context, cfg config.Config) (machine probe.Machine, now status.Facts, p policies, err error) {
	ctx, cancel := context.WithTimeout(ctx, gather.LookTimeout)
	defer cancel()
	reader, err := probe.New("/")
	if err != nil {
		return machine, now, p, err
	}
	machine, _ = reader.Machine() // what lacks is none of what is looked at here
	if p, err = newPolicies(cfg, machine.HostName, ""); err != nil {
		return machine, now, p, err
	}
	facts := gather.NewFacts(gather.FactsOptions{Reader: reader, Folder: cfg.State.Directory, Machine: machine})
	return machine, facts.Measure(ctx, nil), p, nil
}

// Fits tells whether this host has what a configuration wants of it: the error is one for
// which an agent does not start here, and lacks is what it would do without.
func Fits(ctx context.Context, cfg config.Config) (lacks, err error) {
	_, now, p, err := measureAlone(ctx, cfg)
	if err == nil {
		err = status.CheckReserved(now, p.node.Reserved, p.node.Pressure)
	}
	n := networkAlone(cfg.API, slog.New(slog.DiscardHandler))
	if n != nil && n.Err != nil && !errors.Is(n.Err, fs.ErrPermission) { // which tells nothing of root, who reads them
		lacks = fmt.Errorf("%w: an agent that starts now serves nothing over the network", n.Err)
	}
	return lacks, err
}

func machineFacts(machine probe.Machine, now status.Facts, options status.Options) doctor.Machine {
	return doctor.Machine{
		CgroupVersion: machine.CgroupVersion,
		SwapTotal:     now.Memory.SwapTotalBytes, SwapFree: now.Memory.SwapFreeBytes,
		Headrooms: status.Headrooms(now, options),
	}
}
