package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/inspect"
	"hostler.io/hostler/controlplane/conformance"
)

func (a *app) controlPlaneCommand() *cobra.Command {
	return group("controlplane", "Test the control plane", a.verifyCommand())
}

func (a *app) verifyCommand() *cobra.Command {
	var file, kubeconfig, pattern, format string
	var remove []string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that the control plane does what hostler needs; needs root",
		Long: `Test on the configured control plane what hostler relies on. Each check is ok,
failed, not promised or not tried. The agent need not run: the command uses the
configuration and the credentials of the agent.

Existing objects are not changed. Test objects are named hostler-verify- and
eight random letters and digits. No pod can be scheduled on them. Each check
deletes its objects when it ends, also after Ctrl-C. If that fails, the command
prints how to delete them.

In Kubernetes a node may change only its own Node. Most checks therefore need
--kubeconfig with credentials that may create, change and delete Nodes.

Exit codes: 0 no check failed, 1 a check failed, or no check could be tried.`,
		Args: cobra.NoArgs,
	}
	configFlag(cmd, &file)
	formatFlag(cmd, &format)
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "use the credentials of kubeconfig `FILE`; for control plane kubernetes only")
	cmd.Flags().StringVar(&pattern, "run", "", "run only checks whose names match the regular `EXPRESSION`")
	cmd.Flags().StringSliceVar(&remove, "remove", nil, "run no checks; delete what an earlier run left under `NAME`")
	cmd.RunE = func(*cobra.Command, []string) error {
		out, err := a.output(format)
		if err != nil {
			return err
		}
		checks, err := matching(pattern)
		if err != nil {
			return err
		}
		loaded, err := a.shown(file)
		if err != nil {
			return err
		}
		v := inspect.Verifier{Config: loaded.Config, Kubeconfig: kubeconfig, Version: a.Version}
		return a.interruptible(func(ctx context.Context) error {
			if len(remove) > 0 {
				return a.removeLeft(ctx, v, remove)
			}
			return a.verify(ctx, out, v, checks, removal(file, kubeconfig))
		})
	}
	return cmd
}

// matching returns the checks whose names match an expression.
func matching(pattern string) ([]conformance.Check, error) {
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return nil, usageError(fmt.Sprintf("--run %q: %v\nhint: use a regular expression: --run lease runs the checks with lease in their names", pattern, err))
	}
	checks := slices.DeleteFunc(conformance.Checks(), func(c conformance.Check) bool { return !expression.MatchString(c.Name) })
	if len(checks) == 0 {
		return nil, usageError(fmt.Sprintf("--run %q matches no check\nhint: omit --run to see all checks", pattern))
	}
	return checks, nil
}

// removal returns the command that deletes the remaining objects.
func removal(file, kubeconfig string) string {
	command := "hostler controlplane verify"
	for _, flag := range []struct{ name, value string }{{"config", file}, {"kubeconfig", kubeconfig}} {
		if flag.value != "" {
			command += fmt.Sprintf(" --%s %s", flag.name, flag.value)
		}
	}
	return command + " --remove "
}

func (a *app) removeLeft(ctx context.Context, v inspect.Verifier, names []string) error {
	if err := v.Remove(ctx, names); err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "nothing left under %s\n", strings.Join(names, ", "))
	return nil
}

func (a *app) verify(ctx context.Context, out *output, v inspect.Verifier, checks []conformance.Check, removal string) error {
	progress, done := a.verifying(out, len(checks))
	found, err := v.Verify(ctx, checks, progress)
	done()
	if err != nil && len(found.Checks) == 0 {
		return err
	}
	if err := out.print(found, func(t *table) { a.printVerification(t, out, found) }); err != nil {
		return err
	}
	for _, name := range found.Left() {
		fmt.Fprintf(a.Stderr, "not deleted: %s; to delete it, run: %s%s\n", name, removal, name)
	}
	if err != nil {
		return err
	}
	if found.Count(conformance.Failed) > 0 || found.Count(conformance.OK) == 0 {
		return silentError{}
	}
	return ctx.Err()
}

// verifying prints each check. On a terminal it overwrites one line until done is called; otherwise
// each check has its own line. With JSON or YAML output it prints nothing.
func (a *app) verifying(out *output, total int) (show func(conformance.Result), done func()) {
	done = func() {}
	switch {
	case out.format == "json" || out.format == "yaml":
		return nil, done
	case out.wide():
		return nil, done // the final table has all checks
	case !a.terminal():
		return func(r conformance.Result) {
			fmt.Fprintln(a.Stdout, strings.Join(describeResult(out, r), "\n"))
		}, done
	}
	tried := 0
	show = func(r conformance.Result) {
		tried++
		a.showLine(fmt.Sprintf("%d of %d  %.60s", tried, total, r.Check))
	}
	return show, func() { a.showLine("") }
}

// describeResult returns the result of one check in lines that fit the screen.
func describeResult(out *output, r conformance.Result) []string {
	mark := map[conformance.Status]string{
		conformance.OK: out.green("ok  "), conformance.Failed: out.red("FAIL"), conformance.Absent: "-   ", conformance.Untried: out.yellow("?   "),
	}[r.Status]
	text := r.Check
	switch r.Status {
	case conformance.Failed:
		text += ": " + r.Message
	case conformance.Absent, conformance.Untried:
		why := r.Message
		if r.Forbidden { // the summary has the details
			why = "the credentials do not allow it"
		}
		text += fmt.Sprintf(": %s: %s", r.Status, why)
	}
	const indent = "      "
	lines := wrap(text, screenWidth-len(indent))
	for i := range lines {
		if i == 0 {
			lines[i] = mark + indent[4:] + lines[i]
			continue
		}
		lines[i] = indent + lines[i]
	}
	return lines
}

// printVerification prints failures first and the verdict last, so that it is visible without
// scrolling.
func (a *app) printVerification(t *table, out *output, v inspect.Verification) {
	switch {
	case out.wide():
		t.row("CHECK", "STATUS", "MESSAGE")
		for _, r := range v.Checks {
			t.row(r.Check, string(r.Status), r.Message)
		}
	case a.terminal(): // elsewhere each check has printed its lines
		for _, status := range []conformance.Status{conformance.Failed, conformance.Untried, conformance.Absent, conformance.OK} {
			for _, r := range v.Checks {
				if r.Status == status {
					t.line("%s", strings.Join(describeResult(out, r), "\n"))
				}
			}
		}
	}
	t.line("")
	var last []string
	if v.Note != "" {
		last = append(last, "note: "+v.Note)
	}
	if i := slices.IndexFunc(v.Checks, func(r conformance.Result) bool { return r.Forbidden }); i >= 0 {
		last = append(last, v.Checks[i].Message)
	}
	last = append(last, promises(out, v))
	if v.Hint != "" {
		last = append(last, "hint: "+v.Hint)
	}
	for _, text := range last {
		for _, line := range wrap(t.once(text), screenWidth) {
			t.line("%s", line)
		}
	}
}

// promises returns the verdict with the number of checks.
func promises(out *output, v inspect.Verification) string {
	failed, ok := v.Count(conformance.Failed), v.Count(conformance.OK)
	line := fmt.Sprintf("control plane %s at %s ", v.ControlPlane.Type, v.ControlPlane.Endpoint)
	switch {
	case failed > 0:
		line += out.red("FAILED verification")
	case ok == 0:
		line += out.yellow("was not verified")
	default:
		line += out.green("passed verification")
	}
	return line + fmt.Sprintf(": %s, %d ok, %d failed, %d not promised, %d not tried",
		count(len(v.Checks), "check"), ok, failed, v.Count(conformance.Absent), v.Count(conformance.Untried))
}
