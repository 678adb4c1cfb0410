package fromkubelet

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"hostler.io/hostler/agent/config"
)

// whole says what several keys come to together, and what a kubelet does where it is told
// nothing.
func (o *output) whole(k *kubelet) error {
	for _, say := range []func(*kubelet) error{o.reportInterval, o.thresholds, o.reserved, o.shutdown} {
		if err := say(k); err != nil {
			return err
		}
	}
	return nil
}

// reportInterval is that of updates where only these are set.
func (o *output) reportInterval(k *kubelet) error {
	for _, key := range []string{"nodeStatusReportFrequency", "nodeStatusUpdateFrequency"} {
		var text string
		set, err := k.told(key, &text)
		if err != nil || !set {
			if err != nil {
				return err
			}
			continue
		}
		g := k.given[key]
		d, err := g.duration()
		if err != nil {
			return err
		}
		if d != 0 {
			o.set("status.reportInterval", config.Duration(d), g.from)
			return nil
		}
	}
	return nil
}

// signals are what a kubelet looks at, and what hostler calls it.
var signals = []struct{ signal, path string }{
	{"memory.available", "pressure.memoryAvailable"},
	{"nodefs.available", "pressure.nodefsAvailable"},
	{"nodefs.inodesFree", "pressure.nodefsInodesFree"},
	{"imagefs.available", "pressure.imagefsAvailable"},
	{"imagefs.inodesFree", "pressure.imagefsInodesFree"},
	{"pid.available", "pressure.pidAvailable"},
}

// thresholds are those of conditions. A kubelet raises one as soon as either threshold is
// passed, of which the soft one is the first. What evictionHard does not name is off,
// unless it is to be merged with the defaults.
func (o *output) thresholds(k *kubelet) error {
	var hard, soft map[string]string
	var merge bool
	isHard, err := k.told("evictionHard", &hard)
	if err != nil {
		return err
	}
	if _, err := k.told("evictionSoft", &soft); err != nil {
		return err
	}
	if _, err := k.told("mergeDefaultEvictionSettings", &merge); err != nil {
		return err
	}
	for _, s := range signals {
		hardValue, inHard := hard[s.signal]
		softValue, inSoft := soft[s.signal]
		switch {
		case inSoft && !ignored(softValue):
			o.set(s.path, softValue, "evictionSoft; a kubelet raises the condition by it, too")
		case inHard && ignored(hardValue):
			o.set(s.path, "0%", "evictionHard has it "+hardValue+", which is off")
		case inHard:
			o.set(s.path, hardValue, "evictionHard")
		case isHard && !merge:
			o.set(s.path, "0%", "off: evictionHard does not name it")
		}
	}
	for from, all := range map[string]map[string]string{"evictionHard": hard, "evictionSoft": soft} {
		for signal := range all {
			if !slices.ContainsFunc(signals, func(s struct{ signal, path string }) bool { return s.signal == signal }) {
				o.missing = append(o.missing, missing{from + "." + signal, all[signal], "hostler has no such condition"})
			}
		}
	}
	return nil
}

// ignored tells whether a kubelet takes a threshold for none.
func ignored(threshold string) bool { return threshold == "0%" || threshold == "100%" }

// reserved adds up what is kept for the system and for the kubelet.
func (o *output) reserved(k *kubelet) error {
	sums := map[string]resource.Quantity{}
	names := map[string]string{}
	for _, key := range []string{"systemReserved", "kubeReserved"} {
		var all map[string]string
		if _, err := k.told(key, &all); err != nil {
			return err
		}
		for _, name := range sorted(all) {
			q, err := resource.ParseQuantity(all[name])
			g := k.given[key]
			if err != nil {
				fault := g.fault(fmt.Sprintf("%q is no quantity", all[name]))
				fault.Field += "." + name
				return config.Faults{fault}
			}
			if !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, name) {
				o.missing = append(o.missing, missing{g.from + "." + name, all[name], "hostler reserves cpu, memory, ephemeral-storage and pid"})
				continue
			}
			sum := sums[name]
			sum.Add(q)
			sums[name] = sum
			if names[name] != "" {
				names[name] += " + "
			}
			names[name] += g.from
		}
	}
	for name, sum := range sums {
		o.set("node.reserved."+name, sum.String(), names[name])
	}
	return nil
}

// shutdown is off where the kubelet's is.
func (o *output) shutdown(k *kubelet) error {
	var phases []struct {
		Priority                   int32
		ShutdownGracePeriodSeconds int64 `yaml:"shutdownGracePeriodSeconds"`
	}
	if _, err := k.told("shutdownGracePeriodByPodPriority", &phases); err != nil {
		return err
	}
	if len(phases) > 0 {
		list := make([]config.PriorityGrace, len(phases))
		for i, p := range phases {
			list[i] = config.PriorityGrace{Priority: p.Priority, GracePeriod: config.Duration(time.Duration(p.ShutdownGracePeriodSeconds) * time.Second)}
		}
		o.set("shutdown.byPriority", list, "shutdownGracePeriodByPodPriority")
		return nil
	}
	for key, path := range map[string]string{"shutdownGracePeriod": "shutdown.gracePeriod", "shutdownGracePeriodCriticalPods": "shutdown.gracePeriodCriticalPods"} {
		var text string
		set, err := k.told(key, &text)
		if err != nil {
			return err
		}
		g := k.given[key]
		var d time.Duration
		if set {
			if d, err = g.duration(); err != nil {
				return err
			}
		}
		from := key
		if path == "shutdown.gracePeriod" && d == 0 {
			from = "off, as the kubelet's; without these two lines hostler's are 30s and 10s"
		}
		o.set(path, config.Duration(d), from)
	}
	return nil
}
