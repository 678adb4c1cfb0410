// Package settings holds the effective configuration of a running agent and its policies, and
// compares it with the files.
//
// It owns which configuration is effective and why the last reload was rejected. It does not apply
// the configuration to the parts of the agent.
package settings

import (
	"slices"
	"sync"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/status"
)

// Source reads the configuration.
type Source struct {
	File string                        // empty for the default path
	Read func() (config.Loaded, error) // reads the current files, and logs nothing
}

// Settings are the effective configuration. They are safe for concurrent use.
type Settings struct {
	source Source

	mu       sync.Mutex // guards the fields below
	cfg      config.Config
	policies open.Policies
	refused  error         // why the last reload was rejected; nil if it was not
	refusal  config.Config // the rejected configuration
}

// New returns settings with this effective configuration.
func New(cfg config.Config, p open.Policies, source Source) *Settings {
	return &Settings{source: source, cfg: cfg, policies: p}
}

// Read reads the current configuration files.
func (s *Settings) Read() (config.Loaded, error) { return s.source.Read() }

// Config returns the effective configuration.
func (s *Settings) Config() config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// Policies returns the policies of the effective configuration.
func (s *Settings) Policies() open.Policies {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policies
}

// Node returns the effective options of the Node.
func (s *Settings) Node() status.Options { return s.Policies().Node }

// Set replaces the effective configuration.
func (s *Settings) Set(cfg config.Config, p open.Policies) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg, s.policies = cfg, p
}

// Reloaded records the result of a reload of next.
func (s *Settings) Reloaded(next config.Config, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused, s.refusal = err, next
}

// Refused reports whether the last reload was rejected.
func (s *Settings) Refused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused != nil
}

// Compare reads the files, and returns how they differ from the effective configuration. The files
// may have changed without a reload.
func (s *Settings) Compare() doctor.Configuration {
	c := doctor.Configuration{File: s.source.File}
	next, err := s.source.Read()
	if err != nil {
		c.Fault = err.Error()
		return c
	}
	c.Origin = next.Origin
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Differs = config.Changed(s.cfg, next.Config)
	c.Restart = slices.ContainsFunc(c.Differs, func(key string) bool { return !config.Live(key) })
	if s.refused != nil && !c.Restart && len(c.Differs) > 0 && len(config.Changed(s.refusal, next.Config)) == 0 {
		c.Refused = s.refused.Error()
	}
	return c
}
