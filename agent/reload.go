package agent

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/agent/config"
)

// live lists the keys that a reload takes up, by prefix; all others need a
// restart.
var live = []string{
	"imageGC.interval", "imageGC.highThresholdPercent", "imageGC.lowThresholdPercent",
	"imageGC.inodesHighThresholdPercent", "imageGC.inodesLowThresholdPercent",
	"imageGC.minimumAge", "imageGC.maximumAge", "imageGC.keep", "imageGC.includeLocal",
	"containerGC.interval", "containerGC.minimumAge", "containerGC.maximumAge",
	"containerGC.maxPerPodContainer", "containerGC.maxContainers",
	"pressure.", "node.address.", "node.maxPods", "node.reserved.", "status.maxImages", "log.level",
}

// reload takes up the configuration as it is now, or refuses it as a whole and
// keeps the old one.
func (a *Agent) reload() {
	a.notify(a.notifier.Reloading())
	changed, err := a.takeUp()
	switch {
	case err != nil:
		a.log.Error("reload refused: the old configuration stays", "error", err)
	case len(changed) == 0:
		a.log.Info("reloaded: nothing changed")
	default:
		a.log.Info("reloaded", "changed", strings.Join(changed, ", "))
	}
	a.notify(a.notifier.Ready())
}

func (a *Agent) takeUp() (changed []string, err error) {
	next, err := a.options.Reload()
	if err != nil {
		return nil, err
	}
	changed = config.Changed(a.config(), next)
	var refused []string
	for _, key := range changed {
		if !isLive(key) {
			refused = append(refused, key)
		}
	}
	if len(refused) > 0 {
		return nil, fmt.Errorf("%s cannot change while the agent runs; restart it with `systemctl restart hostler`, which stops no container", strings.Join(refused, ", "))
	}
	p, err := newPolicies(next, a.node, a.options.Version)
	if err != nil {
		return nil, err
	}
	if err := a.checkReserved(p.node); err != nil {
		return nil, err
	}
	// The values are valid by now: what follows does not fail half-way.
	a.mu.Lock()
	a.cfg, a.policies = next, p
	a.mu.Unlock()
	setLevel(a.options.Level, next.Log.Level)
	err = errors.Join(
		a.images.SetPolicy(p.gc.Images), a.images.SetInterval(time.Duration(next.ImageGC.Interval)),
		a.dead.SetPolicy(p.gc.Containers), a.dead.SetInterval(time.Duration(next.ContainerGC.Interval)),
	)
	a.loops.Named("image-gc").Allow(collectorPatience(next.ImageGC.Interval))
	a.loops.Named("container-gc").Allow(collectorPatience(next.ContainerGC.Interval))
	a.reporter.Changed()
	return changed, err
}

func isLive(key string) bool {
	for _, prefix := range live {
		if key == prefix || strings.HasSuffix(prefix, ".") && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
