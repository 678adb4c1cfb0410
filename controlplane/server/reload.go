package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/internal/configfile"
	"hostler.io/hostler/internal/hint"
)

// reloaded is the result of a reload: the changed keys, or why it is rejected.
type reloaded struct {
	changed []string
	err     error
}

// requestReload has the goroutine that handles signals reload the configuration.
func (s *Server) requestReload(r *http.Request) (any, error) {
	result := make(chan reloaded, 1)
	select {
	case s.reloads <- result:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	done := <-result
	if done.err != nil {
		return nil, &hint.Error{Message: done.err.Error()} // it has a line for each fault
	}
	return answer.Reload{Changed: done.changed}, nil
}

// reload applies a changed configuration, or rejects all of it.
func (s *Server) reload() reloaded {
	s.notify(s.notifier.Reloading())
	defer func() { s.notify(s.notifier.Ready()) }()
	next, changed, err := s.readChanges()
	if err != nil {
		s.o.Log.Error("reload rejected: keeping the old configuration", "error", err)
		return reloaded{err: hint.Below("reload rejected, keeping the old configuration", err)}
	}
	s.mu.Lock()
	s.config = next
	s.mu.Unlock()
	s.nodes.SetPolicy(next.NodeLifecycle.Policy())
	s.reboots.SetPolicies(next.Reboots.Groups.Policies())
	if s.heartbeats != nil {
		s.heartbeats.SetMax(next.Heartbeats.MaxPerSecond)
	}
	if err := s.o.Level.UnmarshalText([]byte(next.Log.Level)); err != nil {
		s.o.Log.Warn("log level stays", "error", err)
	}
	s.o.Log.Info("configuration reloaded", "changed", changed)
	return reloaded{changed: changed}
}

// readChanges reads the files, and returns the keys that differ from the effective configuration. A
// key that needs a restart is an error.
func (s *Server) readChanges() (next config.Config, changed []string, err error) {
	next, err = s.o.Reload()
	if err != nil {
		return next, nil, err
	}
	changed = s.changed(next)
	if fixed := slices.DeleteFunc(slices.Clone(changed), configfile.Live[config.Config]); len(fixed) > 0 {
		return next, nil, fmt.Errorf("%s cannot change while the server runs; restart it with `systemctl restart hostler-server`", strings.Join(fixed, ", "))
	}
	return next, changed, nil
}

// changed returns the keys whose values differ from the effective configuration.
func (s *Server) changed(next config.Config) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return configfile.Changed(s.config, next)
}

// compare reads the files, and returns how they differ from the effective configuration; nil if they
// do not. The files may have changed without a reload.
func (s *Server) compare() *answer.Configuration {
	next, err := s.o.Read()
	if err != nil {
		return &answer.Configuration{Fault: err.Error()}
	}
	c := answer.Configuration{Differs: s.changed(next)}
	if len(c.Differs) == 0 {
		return nil
	}
	c.Restart = slices.ContainsFunc(c.Differs, func(key string) bool { return !configfile.Live[config.Config](key) })
	return &c
}
