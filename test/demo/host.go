package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

const (
	folder     = lab.Dir + "/demo" // removed with the lab
	configFile = folder + "/hostler.yaml"
	logFile    = folder + "/agent.log" // of the lab's daemon "agent"
)

// pollInterval is the interval at which the demo checks whether something has happened.
const pollInterval = 50 * time.Millisecond

// host is the machine of the demo: its daemons, its pods and its agent.
type host struct {
	lab    *lab.Lab
	out    *console
	binary string
	// picture is the file for the picture of the shutdown, and record the file for its data; empty for
	// none.
	picture, record string

	containerd *lab.Containerd
	login      *lab.Login
	manager    *lab.Notify // the agent's service manager
	agent      *lab.Daemon
	started    time.Time // last start of the agent

	workload podSet
	before   *corev1.Node // Node before the reboot
}

// startAgent starts the agent as the service manager does, and returns when it reports that it is
// ready.
func (h *host) startAgent(ctx context.Context) error {
	if h.agent == nil {
		h.agent = lab.NewDaemon("agent", lab.Tool{Path: h.binary}, folder, nil, "agent", "--config", configFile)
	}
	h.started = time.Now()
	if err := h.agent.StartBy(h.manager.Start); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := h.agent.Await(waiting, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pollInterval)
		defer cancel()
		_, err := h.manager.Await(ctx, "READY", "1", h.started)
		return err
	})
	if err != nil {
		return fmt.Errorf("expected: the agent says that it is up; seen: %w", err)
	}
	return nil
}

// stopAgent stops the agent and waits for its end.
func (h *host) stopAgent(ctx context.Context) error {
	if h.agent == nil || h.agent.PID() == 0 {
		return nil
	}
	if err := h.agent.Stop(ctx); err != nil {
		return err
	}
	if code := h.agent.ExitCode(); code != 0 {
		return fmt.Errorf("stop the agent: it ended with code %d", code)
	}
	return nil
}

// close ends the daemons. The lab ends all other processes.
func (h *host) close(ctx context.Context) error {
	errs := []error{h.stopAgent(ctx)}
	if h.containerd != nil {
		errs = append(errs, h.containerd.Close(ctx))
	}
	if h.login != nil {
		errs = append(errs, h.login.Close(ctx))
	}
	if h.manager != nil {
		errs = append(errs, h.manager.Close())
	}
	return errors.Join(errs...)
}

// show runs hostler and shows its output.
func (h *host) show(ctx context.Context, args ...string) error {
	return h.showCommand(ctx, append([]string{"hostler"}, args...)...)
}

// showCommand runs a command, and shows its command line and its output.
func (h *host) showCommand(ctx context.Context, line ...string) error {
	return h.out.shown(ctx, h.binary, line...)
}

// read runs hostler with -o json and decodes the output.
func (h *host) read(ctx context.Context, into any, args ...string) error {
	return readJSON(ctx, h.binary, into, args...)
}

// readJSON runs a binary of hostler with -o json and decodes the output.
func readJSON(ctx context.Context, binary string, into any, args ...string) error {
	answer, err := run(ctx, binary, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(answer), into); err != nil {
		return fmt.Errorf("read the answer of hostler %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (h *host) status(ctx context.Context) (s api.Status, err error) {
	err = h.read(ctx, &s, "status")
	return s, err
}

// awaitStatus reads the status until reached returns true. The text that reached returns describes
// what was seen.
func (h *host) awaitStatus(ctx context.Context, limit time.Duration, awaited string, reached func(api.Status) (bool, string)) (api.Status, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not happen within %s", limit))
	defer cancel()
	seen := "no answer of hostler status"
	for {
		s, err := h.status(ctx)
		if err == nil {
			var ok bool
			if ok, seen = reached(s); ok {
				return s, nil
			}
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return s, fmt.Errorf("expected: %s; seen: %s; %w", awaited, seen, errors.Join(context.Cause(ctx), err))
		}
	}
}

// run runs a command and returns its standard output; an error contains its standard error.
func run(ctx context.Context, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
