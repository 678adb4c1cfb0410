package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/status"
)

// reloader makes a changed configuration effective while the agent runs.
type reloader struct {
	settings *settings.Settings
	version  string
	effects  []effect
	notify   func(done bool) // notifies the service manager of a reload's start and end
	ending   func() bool     // reports whether the agent is about to end
	log      *slog.Logger

	mu sync.Mutex // held during a reload
}

// effect applies the keys that can change without a restart.
type effect struct {
	keys string // the key and all keys below it; empty: applied with each reload
	// fits returns why the host does not fit the new values; nil if it does. It is called before
	// anything is applied, and only if one of the keys has changed.
	fits func(status.Options) error
	// missing returns which new values the host does not have. The values are effective nevertheless.
	missing func(status.Options) error
	// apply makes valid values effective. It is called with each reload.
	apply func(config.Config, open.Policies)
}

// whenRead is the apply function of keys that are read from the settings at each use.
func whenRead(config.Config, open.Policies) {}

// effects has a row for each key that can change without a restart. A test checks that.
func (a *Agent) effects(level *slog.LevelVar) []effect {
	check := func(config.Config, open.Policies) {
		a.host.facts.Renew() // the number of images to list may have changed
		a.changed.Send()
	}
	return []effect{
		{keys: "node.address", missing: a.missingAddresses, apply: check},
		{keys: "node.maxPods", apply: check},
		{keys: "node.reserved", fits: a.checkReserved, apply: check},
		{keys: "node.onTaint", apply: whenRead},
		{keys: "node.toleration", apply: whenRead},
		{keys: "lease.onLost", apply: whenRead},
		{apply: func(config.Config, open.Policies) { a.shutdown.selfDrainer.Reconfigured() }},
		{keys: "status.maxImages", apply: check},
		{keys: "pressure", fits: a.checkReserved, apply: check},
		{keys: "conditions", apply: func(cfg config.Config, _ open.Policies) { a.host.checks.SetPolicy(cfg.ConditionsPolicy()) }},
		{keys: "reboot", apply: func(cfg config.Config, _ open.Policies) {
			if s := &a.shutdown; s.rebooter != nil {
				s.rebootChecks.SetPolicy(cfg.Reboot.ChecksPolicy())
				s.rebooter.Reconfigured()
			}
		}},
		{keys: "imageGC", apply: func(cfg config.Config, p open.Policies) {
			a.gc.imageLoop.Allow(collectorPatience(cfg.ImageGC.Interval))
			a.gc.images.SetPolicy(p.GC.Images)
			a.gc.images.SetInterval(time.Duration(cfg.ImageGC.Interval))
		}},
		{keys: "containerGC", apply: func(cfg config.Config, p open.Policies) {
			a.gc.deadLoop.Allow(collectorPatience(cfg.ContainerGC.Interval))
			a.gc.dead.SetPolicy(p.GC.Containers)
			a.gc.dead.SetInterval(time.Duration(cfg.ContainerGC.Interval))
		}},
		{keys: "log.level", apply: func(cfg config.Config, _ open.Policies) { open.SetLevel(level, cfg.Log.Level) }},
		{keys: "api.tls.allowedNames", apply: whenRead},
		// This row has no key: a changed kubeconfig may name another server.
		{apply: func(config.Config, open.Policies) { a.host.network.Again() }},
	}
}

// Reload reads the configuration files and makes them effective. If anything is invalid, it rejects
// all and keeps the old configuration.
func (r *reloader) Reload(context.Context) (api.ReloadReport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending() {
		return api.ReloadReport{}, &hint.Error{Message: "reload rejected: the agent is stopping", Hint: "do nothing: the next agent reads the files at start"}
	}
	r.notify(false)
	defer r.notify(true)
	next, changed, warnings, err := r.applyFiles()
	r.settings.Reloaded(next, err)
	switch {
	case err != nil:
		r.log.Error("reload rejected: keeping the old configuration", "error", err)
		return api.ReloadReport{}, hint.Below("reload rejected, keeping the old configuration", err)
	case len(changed) == 0:
		r.log.Info("reloaded: nothing changed")
	default:
		r.log.Info("reloaded", "changed", strings.Join(changed, ", "))
	}
	for _, warning := range warnings {
		r.log.Warn("reloaded, but the host lacks what is configured", "error", warning)
	}
	return api.ReloadReport{Changed: changed, Warnings: warnings}, nil
}

// applyFiles applies the configuration of the files. It returns the new configuration, the changed
// keys, and what the host lacks for it.
func (r *reloader) applyFiles() (next config.Config, changed, warnings []string, err error) {
	loaded, err := r.settings.Read()
	warnIgnored(r.log, loaded.Ignored)
	next = loaded.Config
	if err != nil {
		return next, nil, nil, err
	}
	changed = config.Changed(r.settings.Config(), next)
	var refused []string
	for _, key := range changed {
		if !config.Live(key) {
			refused = append(refused, key)
		}
	}
	if len(refused) > 0 {
		return next, nil, nil, fmt.Errorf("%s cannot change while the agent runs; restart it with `systemctl restart hostler`, which stops no container", strings.Join(refused, ", "))
	}
	p, err := open.NewPolicies(next, r.settings.Node().Name, r.version)
	if err != nil {
		return next, nil, nil, err
	}
	for _, e := range r.effects {
		// If a host no longer fits unchanged keys, `hostler status` shows that; the reload
		// continues.
		if !slices.ContainsFunc(changed, func(key string) bool { return below(key, e.keys) }) {
			continue
		}
		if e.fits != nil {
			if err := e.fits(p.Node); err != nil {
				return next, nil, nil, err
			}
		}
		if e.missing != nil {
			if err := e.missing(p.Node); err != nil {
				warnings = append(warnings, err.Error())
			}
		}
	}
	r.settings.Set(next, p)
	for _, e := range r.effects { // for all keys: files that they name may have changed
		e.apply(next, p)
	}
	return next, changed, warnings, nil
}

// below reports whether key equals of or is below it.
func below(key, of string) bool { return key == of || strings.HasPrefix(key, of+".") }

func warnIgnored(log *slog.Logger, files []string) {
	for _, file := range files {
		log.Warn("configuration file is "+config.NotRead, "file", file)
	}
}
