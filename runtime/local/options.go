package local

import (
	"cmp"
	"log/slog"
	"time"
)

// Options say which runtime an adapter talks to, and how. Only Endpoint is required.
type Options struct {
	// Endpoint is the socket, as unix:///path or as an absolute path.
	Endpoint string
	// Name is put into every object that the adapter lists, and tells this
	// runtime from others on the host. The adapter's NameOf(Endpoint) if empty.
	Name string
	// Logger receives the few things that are nobody's error. Nothing if nil.
	Logger *slog.Logger
	// Observe is called after each call to the runtime with the method's name, such as
	// "ListContainers", how long it took, and its error; not for event streams,
	// which end when they end. It must be safe for concurrent use. May be nil.
	Observe func(method string, took time.Duration, err error)
	// Timeouts bound the calls; a zero one is the default.
	Timeouts Timeouts
	// ProcRoot is the proc filesystem whose self/mountinfo names the mounts
	// that image filesystems are resolved to. "/proc" if empty.
	ProcRoot string
}

// Complete fills in what is empty, and returns the socket's path as well. It fails on an
// endpoint that cannot be a unix socket, and on a negative timeout.
func (o Options) Complete(nameOf func(path string) string) (complete Options, path string, err error) {
	if path, err = ParseEndpoint(o.Endpoint); err != nil {
		return o, "", err
	}
	if o.Timeouts, err = o.Timeouts.WithDefaults(); err != nil {
		return o, "", err
	}
	if o.Name == "" {
		o.Name = nameOf(path)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("runtime", o.Name)
	if o.Observe == nil {
		o.Observe = func(string, time.Duration, error) {}
	}
	o.ProcRoot = cmp.Or(o.ProcRoot, "/proc")
	return o, path, nil
}
