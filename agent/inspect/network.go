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

// Network returns the facts about the TLS files; nil if nothing is served over the network.
func Network(cfg config.API, files *listen.Files) *doctor.Network {
	if files == nil {
		return nil
	}
	n := &doctor.Network{Err: files.Refresh(), Exposed: Exposed([]string{cfg.TLS.Key})}
	if begins, ends := files.Validity(); !ends.IsZero() {
		n.Certificate = &doctor.Certificate{Path: cfg.TLS.Certificate, Begins: begins, Ends: ends}
	}
	return n
}

// servicesOwn reports whether only the service can read one of the files. Its credentials exist
// only while it runs, and it has its own /tmp.
func servicesOwn(files ...string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		return slices.ContainsFunc([]string{"/run/credentials/", "/tmp/", "/var/tmp/"}, func(folder string) bool { return strings.HasPrefix(file, folder) })
	})
}

// networkAlone returns the facts without an agent.
func networkAlone(cfg config.API, log *slog.Logger) *doctor.Network {
	if servicesOwn(cfg.TLS.Certificate, cfg.TLS.Key, cfg.TLS.ClientCA) {
		return &doctor.Network{Unchecked: true}
	}
	return Network(cfg, open.Files(cfg, log))
}
