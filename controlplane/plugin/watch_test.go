package plugin_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/controlplane/plugin/plugintest"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
)

func TestAPluginWithoutListOrWatchIsPolled(t *testing.T) {
	unimplemented := func(_ context.Context, method string) error {
		if method == "List" || method == "Watch" {
			return status.Error(codes.Unimplemented, "none")
		}
		return nil
	}
	for name, server := range map[string]*plugintest.Server{
		"that says so":   {About: func(r *v1.InfoResponse) { r.Abilities = nil }},
		"that claims it": {Fault: unimplemented},
	} {
		t.Run(name, func(t *testing.T) {
			s := with(t, server)
			if err := list(t.Context(), s); !errors.Is(err, controlplane.ErrForbidden) {
				t.Errorf("List() = %v, want %v", err, controlplane.ErrForbidden)
			}
			watched(t, s)
		})
	}
}

// watched watches an object that is created, changed and deleted.
func watched(t *testing.T, s *plugin.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan objects.Object), make(chan error, 1)
	go func() { ended <- s.Watch(ctx, node, seen) }()
	next := func(want objects.Version) {
		t.Helper()
		select {
		case o := <-seen:
			if o.Key != node || o.Version != want {
				t.Fatalf("Watch() sends %+v, want version %q", o, want)
			}
		case err := <-ended:
			t.Fatalf("Watch() = %v, want it to continue", err)
		}
	}
	next(objects.None)
	version := put(t, s, node, "a", objects.None)
	next(version)
	version = put(t, s, node, "b", version)
	next(version)
	check(t, s.Delete(t.Context(), node, version))
	next(objects.None)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch() = %v, want %v", err, context.Canceled)
	}
}

func TestAPluginReportsChanges(t *testing.T) { watched(t, with(t, &plugintest.Server{})) }

func TestAWatchEndsWithItsPlugin(t *testing.T) {
	path := socket(t)
	stop := serve(t, path, &plugintest.Server{})
	s := open(t, path)
	seen, ended := make(chan objects.Object), make(chan error, 1)
	go func() { ended <- s.Watch(t.Context(), node, seen) }()
	<-seen
	stop()
	if err := <-ended; !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Watch() of a plugin that has ended = %v, want %v", err, controlplane.ErrUnavailable)
	}
}

func TestAWatchEndsWhenItsPluginDoesNotAnswerInfoAnyMore(t *testing.T) {
	var unresponsive atomic.Bool
	s := with(t, &plugintest.Server{Fault: func(_ context.Context, method string) error {
		if method == "Info" && unresponsive.Load() {
			return status.Error(codes.Unavailable, "gone quiet")
		}
		return nil
	}})
	seen, ended := make(chan objects.Object), make(chan error, 1)
	go func() { ended <- s.Watch(t.Context(), node, seen) }()
	<-seen
	unresponsive.Store(true)
	if err := <-ended; !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "gone quiet") {
		t.Errorf("Watch() = %v, want what the plugin said last", err)
	}
}

// sender is a log that calls a function with each message.
type sender func(message string)

func (f sender) Enabled(context.Context, slog.Level) bool { return true }

func (f sender) Handle(_ context.Context, r slog.Record) error {
	f(r.Message)
	return nil
}

func (f sender) WithAttrs([]slog.Attr) slog.Handler { return f }

func (f sender) WithGroup(string) slog.Handler { return f }

// The plugin ends right after its answer to Info, and does not return.
func TestAWatchThatCannotBeginEnds(t *testing.T) {
	t.Parallel()
	path := socket(t)
	stop := serve(t, path, &plugintest.Server{})
	var s *plugin.Store
	var err error
	s, err = plugin.New(plugin.Options{Socket: path, Version: "1.2.3", Timeout: time.Second, Log: slog.New(sender(func(message string) {
		if message == "connected to plugin" {
			stop()
			s.WaitLost(t.Context())
		}
	}))})
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	if err := s.Watch(t.Context(), node, make(chan objects.Object)); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Watch() = %v, want %v", err, controlplane.ErrUnavailable)
	}
}
