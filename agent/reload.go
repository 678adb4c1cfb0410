package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
)

// Reload takes up the configuration as it is now, or refuses it as a whole and
// keeps the old one.
func (a *Agent) Reload(context.Context) (api.ReloadReport, error) {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	if a.ending.Load() {
		return api.ReloadReport{}, &api.Error{Message: "reload refused: the agent is about to end", Hint: "the next one reads the files anyway"}
	}
	a.notify(a.notifier.Reloading())
	defer func() { a.notify(a.notifier.Ready()) }()
	next, changed, err := a.takeUp()
	a.mu.Lock()
	a.refused, a.refusal = err, next
	a.mu.Unlock()
	switch {
	case err != nil:
		a.log.Error("reload refused: the old configuration stays", "error", err)
		if strings.Contains(err.Error(), "\n") { // several faults, each on its line
			return api.ReloadReport{}, fmt.Errorf("reload refused, and the old configuration stays:\n%w", err)
		}
		return api.ReloadReport{}, fmt.Errorf("reload refused, and the old configuration stays: %w", err)
	case len(changed) == 0:
		a.log.Info("reloaded: nothing changed")
	default:
		a.log.Info("reloaded", "changed", strings.Join(changed, ", "))
	}
	return api.ReloadReport{Changed: changed}, nil
}

// Config tells the configuration in force, and how the files differ from it.
func (a *Agent) Config(context.Context) (api.Config, error) {
	text, err := a.config().YAML()
	return api.Config{YAML: string(text), Configuration: a.configuration()}, err
}

// configuration says whether the files say what is in force. They are read for it:
// somebody may have changed them, and reloaded nothing.
func (a *Agent) configuration() doctor.Configuration {
	c := doctor.Configuration{File: a.options.File}
	next, err := a.options.Reload()
	if err != nil {
		c.Fault = err.Error()
		return c
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c.Differs = config.Changed(a.cfg, next.Config)
	c.Restart = slices.ContainsFunc(c.Differs, func(key string) bool { return !config.Live(key) })
	if a.refused != nil && !c.Restart && len(c.Differs) > 0 && len(config.Changed(a.refusal, next.Config)) == 0 {
		c.Refused = a.refused.Error()
	}
	return c
}

// takeUp tells the keys that have changed, and what the files say.
func (a *Agent) takeUp() (next config.Config, changed []string, err error) {
	loaded, err := a.options.Reload()
	warnIgnored(a.log, loaded.Ignored)
	next = loaded.Config
	if err != nil {
		return next, nil, err
	}
	changed = config.Changed(a.config(), next)
	var refused []string
	for _, key := range changed {
		if !config.Live(key) {
			refused = append(refused, key)
		}
	}
	if len(refused) > 0 {
		return next, nil, fmt.Errorf("%s cannot change while the agent runs; restart it with `systemctl restart hostler`, which stops no container", strings.Join(refused, ", "))
	}
	p, err := open.NewPolicies(next, a.node, a.options.Version)
	if err != nil {
		return next, nil, err
	}
	if slices.ContainsFunc(changed, func(key string) bool {
		return strings.HasPrefix(key, "node.reserved.") || strings.HasPrefix(key, "pressure.")
	}) { // else it is the host that has changed, which status tells
		if err := a.checkReserved(p.Node); err != nil {
			return next, nil, err
		}
	}
	// The values are valid by now: what follows does not fail half-way.
	a.mu.Lock()
	a.cfg, a.policies = next, p
	a.mu.Unlock()
	open.SetLevel(a.options.Level, next.Log.Level)
	err = errors.Join(
		a.images.SetPolicy(p.GC.Images), a.images.SetInterval(time.Duration(next.ImageGC.Interval)),
		a.dead.SetPolicy(p.GC.Containers), a.dead.SetInterval(time.Duration(next.ContainerGC.Interval)),
		a.conditions.SetPolicy(next.ConditionsPolicy()),
	)
	a.loops.Named("image-gc").Allow(collectorPatience(next.ImageGC.Interval))
	a.loops.Named("container-gc").Allow(collectorPatience(next.ContainerGC.Interval))
	a.facts.Renew()   // the Node may be to list more images
	a.network.Again() // a kubeconfig may name another server
	a.reporter.Changed()
	return next, changed, err
}

func warnIgnored(log *slog.Logger, files []string) {
	for _, file := range files {
		log.Warn("configuration file is "+config.NotRead, "file", file)
	}
}
