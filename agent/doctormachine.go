package agent

import (
	"context"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/host"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
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
	ctx, cancel := context.WithTimeout(ctx, host.LookTimeout)
	defer cancel()
	reader, err := probe.New("/")
	if err != nil {
		return doctor.Machine{}, err
	}
	machine, _ := reader.Machine() // what lacks is none of what is looked at here
	policies, err := newPolicies(cfg, machine.HostName, "")
	if err != nil {
		return doctor.Machine{}, err
	}
	facts := host.NewFacts(host.FactsOptions{Reader: reader, Folder: cfg.State.Directory, Machine: machine})
	return machineFacts(machine, facts.Measure(ctx, nil), policies.node), nil
}

func machineFacts(machine probe.Machine, now status.Facts, options status.Options) doctor.Machine {
	return doctor.Machine{
		CgroupVersion: machine.CgroupVersion,
		SwapTotal:     now.Memory.SwapTotalBytes, SwapFree: now.Memory.SwapFreeBytes,
		Headrooms: status.Headrooms(now, options),
	}
}
