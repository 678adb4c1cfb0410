package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/controlplane/plugin/process"
	"hostler.io/hostler/internal/loop"
)

// pluginPatience is how long the loop that runs a plugin may go without a look at it.
const pluginPatience = 3*process.Interval + time.Minute

// openPlugin opens the control plane that a plugin is, and has a loop run its program
// where hostler is to.
func (a *Agent) openPlugin() (controlplane.Client, error) {
	opened, err := openPlugin(a.cfg.ControlPlane.Plugin, a.cfg.API.Socket, a.options.Version, a.log)
	if err != nil {
		return nil, err
	}
	if a.plugged = opened; opened.program != nil {
		a.plugin = loop.New("plugin", pluginPatience, func(ctx context.Context) error { return opened.program.Run(ctx, a.plugin.Beat) })
	}
	return opened.Client, nil
}

// plugged is a plugin that was opened, with its program where hostler is to run it; else
// that is nil.
type plugged struct {
	*objects.Client
	store   *plugin.Store
	program *process.Process
}

// openPlugin opens a plugin, and prepares its program, with a socket beside that path,
// where hostler is to run it.
func openPlugin(c config.Plugin, beside, version string, log *slog.Logger) (*plugged, error) {
	o := plugin.Options{Socket: c.Socket, Version: version, Log: log}
	if len(c.Command) > 0 {
		o.Socket = process.Socket(beside)
	}
	store, err := plugin.New(o)
	if err != nil {
		return nil, err
	}
	p := &plugged{Client: objects.New(store, objects.Options{}), store: store}
	if len(c.Command) == 0 {
		return p, nil
	}
	if p.program, err = process.New(process.Options{Command: c.Command, Socket: o.Socket, Probe: store.Probe, Log: log}); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// alone is a plugin that a command has for as long as it needs it.
type alone struct {
	*plugged
	end func() error
}

// Close ends the plugin as well. The error tells that it had ended by itself before.
func (a alone) Close() error { return a.end() }

// runPlugin opens a plugin for a command, which asks no agent: where hostler is to run
// it, a program of its own, beside the agent's. It waits until that serves, or ctx ends.
func runPlugin(ctx context.Context, c config.Plugin, version string, log *slog.Logger) (alone, error) {
	folder, err := os.MkdirTemp("", "hostler-plugin-")
	if err != nil {
		return alone{}, fmt.Errorf("make a folder for the plugin's socket: %w", err)
	}
	p, err := openPlugin(c, filepath.Join(folder, "verified"), version, log)
	switch {
	case err != nil:
		return alone{}, errors.Join(err, os.Remove(folder))
	case p.program == nil:
		return alone{p, p.Close}, os.Remove(folder)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx)) // what was made is taken away through it
	serves, ended := make(chan struct{}), make(chan error, 1)
	serve, hangUp := sync.OnceFunc(func() { close(serves) }), sync.OnceValue(p.Close)
	go func() {
		err := p.program.Run(running, func(err error) {
			if err == nil {
				serve()
			}
		})
		if running.Err() == nil {
			_ = hangUp() // calls would wait for one that does not come back
		}
		ended <- err
	}()
	opened := alone{p, sync.OnceValue(func() error {
		hungUp := hangUp()
		cancel()
		err := <-ended
		if errors.Is(err, context.Canceled) { // it was ended
			err = nil
		}
		return errors.Join(hungUp, err, os.RemoveAll(folder))
	})}
	select {
	case <-serves:
		return opened, nil
	case err := <-ended:
		ended <- err
		return alone{}, opened.Close()
	case <-ctx.Done():
		return alone{}, errors.Join(context.Cause(ctx), opened.Close())
	}
}
