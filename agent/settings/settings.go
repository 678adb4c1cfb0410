// Package settings holds the effective configuration of a running agent, with the policies
// that it means, and compares it with the files.
//
// It owns which configuration is effective and why the last reload was refused. It does not
// apply a configuration to the parts of the agent.
package settings

import (
	"slices"
	"sync"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/status"
)

// Source is where the configuration is read from.
type Source struct {
	File string                        // empty for the default one
	Read func() (config.Loaded, error) // reads it now, and logs nothing
}

// Settings are the effective configuration. They are safe for concurrent use.
type Settings struct {
	source Source

	mu       sync.Mutex // guards what follows
	cfg      config.Config
	policies open.Policies
	refused  error         // why the last reload was refused; nil if it was not
	refusal  config.Config // the configuration that it refused
}

// New returns settings with that effective configuration.
func New(cfg config.Config, p open.Policies, source Source) *Settings {
	return &Settings{source: source, cfg: cfg, policies: p}
}

// Read reads the configuration as the files have it now.
func (s *Settings) Read() (config.Loaded, error) { return s.source.Read() }

// Config is the effective configuration.
func (s *Settings) Config() config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// Policies are those of the effective configuration.
func (s *Settings) Policies() open.Policies {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policies
}

// Node are the effective options of the Node.
func (s *Settings) Node() status.Options { return s.Policies().Node }

// Set makes another configuration effective.
func (s *Settings) Set(cfg config.Config, p open.Policies) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg, s.policies = cfg, p
}

// Reloaded notes how a reload of that configuration ended.
func (s *Settings) Reloaded(next config.Config, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused, s.refusal = err, next
}

// Refused reports whether the last reload was refused.
func (s *Settings) Refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused != nil
}

// Compare reads the files, which somebody may have changed without a reload, and returns how
// they differ from what is effective.
func (s *Settings) Compare() doctor.Configuration {
	c := doctor.Configuration{File: s.source.File}
	next, err := s.source.Read()
	if err != nil {
		c.Fault = err.Error()
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Differs = config.Changed(s.cfg, next.Config)
	c.Restart = slices.ContainsFunc(c.Differs, func(key string) bool { return !config.Live(key) })
	if s.refused != nil && !c.Restart && len(c.Differs) > 0 && len(config.Changed(s.refusal, next.Config)) == 0 {
		c.Refused = s.refused.Error()
	}
	return c
}
