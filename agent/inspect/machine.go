package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/probe"
)

// measureAlone measures this host without an agent, and returns the policies of the configuration.
func measureAlone(ctx context.Context, cfg config.Config) (now status.Facts, p open.Policies, err error) {
	ctx, cancel := context.WithTimeout(ctx, gather.ProbeTimeout)
	defer cancel()
	reader, err := probe.New("/")
	if err != nil {
		return now, p, err
	}
	machine, _ := reader.Machine() // the missing facts are not needed here
	if p, err = open.NewPolicies(cfg, machine.HostName, ""); err != nil {
		return now, p, err
	}
	facts := gather.NewFacts(gather.FactsOptions{Reader: reader, Folder: cfg.State.Directory, Machine: machine})
	return facts.Measure(ctx, nil), p, nil
}

// Fits checks whether this host fits the configuration. If err is not nil, an agent cannot start.
// missing names what an agent can work without.
func Fits(ctx context.Context, cfg config.Config) (missing, err error) {
	now, p, err := measureAlone(ctx, cfg)
	if err == nil {
		err = status.CheckReserved(now, p.Node.Reserved, p.Node.Pressure)
		missing = status.MissingAddresses(probe.Addresses(), p.Node.Addresses)
	}
	n := networkAlone(cfg.API, slog.New(slog.DiscardHandler))
	if n != nil && n.Err != nil && !errors.Is(n.Err, fs.ErrPermission) { // root may be able to read the files
		missing = errors.Join(missing, fmt.Errorf("%w: an agent that starts now serves nothing over the network", n.Err))
	}
	if file := cfg.Reboot.Lock.PasswordFile; file != "" {
		if _, err := trust.ReadSecret(file); err != nil && !errors.Is(err, fs.ErrPermission) {
			missing = errors.Join(missing, fmt.Errorf("reboot.lock.passwordFile: %w: an agent that starts now gets no reboot slot", err))
		}
	}
	if p.Node.NameProblem != "" {
		missing = errors.Join(missing, fmt.Errorf("%w: an agent that starts now waits for a name for its Node", &status.HostNameError{Problem: p.Node.NameProblem}))
	}
	return missing, err
}
