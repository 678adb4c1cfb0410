package agent

import (
	"context"
	"errors"
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

// reloader makes another configuration effective while the agent runs.
type reloader struct {
	settings *settings.Settings
	version  string
	fits     func(status.Options) error // why the host cannot give what that reserves
	effects  []effect
	notify   func(done bool) // tells the service manager that a reload begins, or is done
	ending   func() bool     // reports whether the agent is about to end
	log      *slog.Logger

	mu sync.Mutex // held by the reload that is under way
}

// effect is how keys that may change live take effect. It is applied with each reload.
type effect struct {
	keys  string // and all below it; empty for none
	apply func(config.Config, open.Policies) error
}

// whenRead is the effect of keys that are read from the settings at each use.
func whenRead(config.Config, open.Policies) error { return nil }

// effects has a row for each key that may change live, which a test checks.
func (a *Agent) effects(level *slog.LevelVar) []effect {
	look := func(config.Config, open.Policies) error {
		a.host.facts.Renew() // the Node may be to list more images
		a.changed.Send()
		return nil
	}
	return []effect{
		{"node.address", look},
		{"node.maxPods", look},
		{"node.reserved", look},
		{"status.maxImages", look},
		{"pressure", look},
		{"conditions", func(cfg config.Config, _ open.Policies) error { return a.host.checks.SetPolicy(cfg.ConditionsPolicy()) }},
		{"imageGC", func(cfg config.Config, p open.Policies) error {
			a.gc.imageLoop.Allow(collectorPatience(cfg.ImageGC.Interval))
			return errors.Join(a.gc.images.SetPolicy(p.GC.Images), a.gc.images.SetInterval(time.Duration(cfg.ImageGC.Interval)))
		}},
		{"containerGC", func(cfg config.Config, p open.Policies) error {
			a.gc.deadLoop.Allow(collectorPatience(cfg.ContainerGC.Interval))
			return errors.Join(a.gc.dead.SetPolicy(p.GC.Containers), a.gc.dead.SetInterval(time.Duration(cfg.ContainerGC.Interval)))
		}},
		{"log.level", func(cfg config.Config, _ open.Policies) error { open.SetLevel(level, cfg.Log.Level); return nil }},
		{"api.tls.allowedNames", whenRead},
		{"", func(config.Config, open.Policies) error { // of no key: a kubeconfig may name another server
			a.host.network.Again()
			return nil
		}},
	}
}

// Reload makes the configuration effective that the files have now, or refuses it as a whole
// and keeps the old one.
func (r *reloader) Reload(context.Context) (api.ReloadReport, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending() {
		return api.ReloadReport{}, &hint.Error{Message: "reload refused: the agent is about to end", Hint: "the next one reads the files anyway"}
	}
	r.notify(false)
	defer r.notify(true)
	next, changed, err := r.takeUp()
	r.settings.Reloaded(next, err)
	switch {
	case err != nil:
		r.log.Error("reload refused: the old configuration stays", "error", err)
		if strings.Contains(err.Error(), "\n") { // several faults, each on its line
			return api.ReloadReport{}, fmt.Errorf("reload refused, and the old configuration stays:\n%w", err)
		}
		return api.ReloadReport{}, fmt.Errorf("reload refused, and the old configuration stays: %w", err)
	case len(changed) == 0:
		r.log.Info("reloaded: nothing changed")
	default:
		r.log.Info("reloaded", "changed", strings.Join(changed, ", "))
	}
	return api.ReloadReport{Changed: changed}, nil
}

// takeUp returns the keys that have changed, and what the files say.
func (r *reloader) takeUp() (next config.Config, changed []string, err error) {
	loaded, err := r.settings.Read()
	warnIgnored(r.log, loaded.Ignored)
	next = loaded.Config
	if err != nil {
		return next, nil, err
	}
	changed = config.Changed(r.settings.Config(), next)
	var refused []string
	for _, key := range changed {
		if !config.Live(key) {
			refused = append(refused, key)
		}
	}
	if len(refused) > 0 {
		return next, nil, fmt.Errorf("%s cannot change while the agent runs; restart it with `systemctl restart hostler`, which stops no container", strings.Join(refused, ", "))
	}
	p, err := open.NewPolicies(next, r.settings.Node().Name, r.version)
	if err != nil {
		return next, nil, err
	}
	if slices.ContainsFunc(changed, func(key string) bool { return below(key, "node.reserved") || below(key, "pressure") }) {
		// Else it is the host that has changed, which status shows.
		if err := r.fits(p.Node); err != nil {
			return next, nil, err
		}
	}
	// The values are valid by now: what follows does not fail half-way.
	r.settings.Set(next, p)
	var errs []error
	for _, e := range r.effects { // those of keys that have not changed, too: files that they name may have
		errs = append(errs, e.apply(next, p))
	}
	return next, changed, errors.Join(errs...)
}

// below reports whether a key is that one or below it.
func below(key, of string) bool { return key == of || strings.HasPrefix(key, of+".") }

func warnIgnored(log *slog.Logger, files []string) {
	for _, file := range files {
		log.Warn("configuration file is "+config.NotRead, "file", file)
	}
}
