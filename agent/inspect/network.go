package inspect

import (
	"log/slog"
	"slices"
	"strings"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/internal/listen"
)

// Network is what doctor judges of it by the files; nil where nothing is served.
func Network(cfg config.API, files *listen.Files) *doctor.Network {
	if files == nil {
		return nil
	}
	n := &doctor.Network{Err: files.Refresh(), Exposed: Exposed([]string{cfg.TLS.Key})}
	if begins, ends := files.Life(); !ends.IsZero() {
		n.Certificate = &doctor.Certificate{Path: cfg.TLS.Certificate, Begins: begins, Ends: ends}
	}
	return n
}

// servicesOwn reports whether one of files is the service's own, and cannot be looked at without an
// agent: credentials are there while it runs, and /tmp is another one for it.
func servicesOwn(files ...string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		return slices.ContainsFunc([]string{"/run/credentials/", "/tmp/", "/var/tmp/"}, func(folder string) bool { return strings.HasPrefix(file, folder) })
	})
}

// networkAlone are the facts without an agent.
func networkAlone(cfg config.API, log *slog.Logger) *doctor.Network {
	if servicesOwn(cfg.TLS.Certificate, cfg.TLS.Key, cfg.TLS.ClientCA) {
		return &doctor.Network{Unchecked: true}
	}
	return Network(cfg, open.Files(cfg, log))
}
