package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/inspect"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := a.reader("doctor", "Diagnose this host and suggest fixes", func(ctx context.Context, c *api.Client, out *output) error {
		r, err := a.examine(ctx, c)
		if err != nil {
			return err
		}
		r = r.CheckVersion(a.Version)
		if err := out.print(r, func(t *table) { printDiagnosis(t, out, r) }); err != nil {
			return err
		}
		if r.Failed() {
			return silentError{}
		}
		return nil
	})
	cmd.Long = `Check shutdown protection, garbage collection and the control plane, and suggest
fixes. Nothing is changed.

Each check is ok, warn, fail or unknown (?), the worst first. If no agent
answers, root gets the checks that work without it, with the configuration of
hostler.service. A check is unknown if it needs the agent, or if systemd did not
answer in time.

Exit codes: 0 no check fails, 1 a check fails, 3 the agent cannot be reached.`
	return cmd
}

// examine queries the agent. If it does not answer, root diagnoses the host directly.
func (a *app) examine(ctx context.Context, c *api.Client) (doctor.Report, error) {
	r, err := c.Doctor(ctx)
	unreachable := new(api.UnreachableError)
	away := errors.As(err, &unreachable)
	if err != nil && !away || os.Geteuid() != 0 || a.socket != "" {
		return r, err
	}
	if !away && a.Getenv("HOSTLER_SOCKET") != "" { // perhaps the agent of another container
		return r, nil
	}
	file, loaded, fault := a.orDefaults(ctx)
	if !away {
		return r.Compare(func() (doctor.Report, error) {
			return inspect.Doctor(ctx, loaded, file, fault, errors.New("not queried"))
		}), nil
	}
	return inspect.Doctor(ctx, loaded, file, fault, fmt.Errorf("no agent answers at %s: %w", unreachable.Socket, unreachable.Cause))
}

// printDiagnosis prints the verdict, then each problem with its fix, then the other checks.
func printDiagnosis(t *table, out *output, r doctor.Report) {
	if r.Message != "" {
		t.line("%s", out.yellow(r.Message))
	}
	for _, line := range wrap(diagnosis(out, r), screenWidth) {
		t.line("%s", line)
	}
	t.line("")
	if out.wide() {
		t.row("CHECK", "STATUS", "MESSAGE", "FIX")
		for _, c := range r.Checks {
			t.row(c.Name, string(c.Status), t.cell(shortened(r, c)), t.cell(c.Hint))
		}
		return
	}
	for _, c := range r.Checks {
		mark := out.green("ok  ")
		switch c.Status {
		case doctor.Fail:
			mark = out.red("FAIL")
		case doctor.Warn:
			mark = out.yellow("WARN")
		case doctor.Unknown:
			mark = out.yellow("?   ")
		}
		const indent = "      "
		for i, line := range wrap(c.Name+": "+t.once(shortened(r, c)), screenWidth-len(indent)) {
			if i == 0 {
				t.line("%s", mark+indent[4:]+line)
				continue
			}
			t.line("%s", indent+line)
		}
		if c.Hint == "" {
			continue
		}
		for i, line := range wrap(t.once(c.Hint), screenWidth-len(indent)-len("fix: ")) {
			if i == 0 {
				line = "fix: " + line
			} else {
				line = strings.Repeat(" ", len("fix: ")) + line
			}
			t.line("%s", indent+line)
		}
	}
}

// shortened is the message of a check. If its fix is to see a check whose fix has etcd commands, the message
// has none: an error has the commands for all rights, the other check those for what is missing.
func shortened(r doctor.Report, c doctor.Check) string {
	if slices.ContainsFunc(r.Checks, func(o doctor.Check) bool { return c.Hint == "see check "+o.Name && commandBegins.MatchString(o.Hint) }) {
		return replaceCommands(c.Message, ": "+c.Hint, func([]string) bool { return false })
	}
	return c.Message
}

// diagnosis returns the first line: whether pods are protected.
func diagnosis(out *output, r doctor.Report) string {
	verdict := out.red("NOT PROTECTED")
	if r.Protected {
		verdict = out.green("protected")
	}
	line := "pods are " + verdict + " at a shutdown: "
	failing, warnings := r.Count(doctor.Fail), r.Count(doctor.Warn)
	if r.Count(doctor.OK) == len(r.Checks) {
		return line + fmt.Sprintf("all %d checks ok", len(r.Checks))
	}
	line += fmt.Sprintf("%s, %d fail, %d warn", count(len(r.Checks), "check"), failing, warnings)
	if n := r.Count(doctor.Unknown); n > 0 {
		line += fmt.Sprintf(", %d unknown", n)
	}
	return line
}
