// Package doctor answers the question of a person at night: is this host well,
// and if not, what do I type?
//
// It owns the checks: what each looks at, its verdict in plain words and its
// fix. It decides by facts alone, which Gather collects with or without an
// agent, and never changes the host.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Status is a check's verdict.
type Status string

// The verdicts. Fail is for what costs pods their time at a shutdown, or the
// person the answer to whether it does. Unknown is for what only an agent could say
// where none answers, which is a fault of its own, and for what systemd has not told in
// time.
const (
	OK      Status = "ok"
	Unknown Status = "unknown"
	Warn    Status = "warn"
	Fail    Status = "fail"
)

// Check is one thing that was looked at.
type Check struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Message string `json:"message"` // what was found
	Hint    string `json:"hint"`    // the fix: what to type or to change; empty for what is ok
}

// Report is all that was looked at, the worst first, and causes before their effects.
type Report struct {
	// Protected reports whether a shutdown now would wait until the pods have
	// stopped, for as long as they are to have.
	Protected bool    `json:"protected"`
	Checks    []Check `json:"checks"`
	// Message says why not everything could be looked at; empty where it was.
	Message string `json:"message,omitempty"`
	// Version is the agent's; empty where none answers.
	Version string `json:"version,omitempty"`
}

// Examine judges facts.
func Examine(f Facts) Report {
	r := Report{Protected: f.Protection.Protected && protection(f).Status == OK, Checks: []Check{}, Version: f.Agent.Version}
	for _, c := range checks() {
		r.add(c.name, c.judge(f))
	}
	r.worstFirst()
	if !f.Agent.Answers {
		r.Message = "no agent answers; checks that need it are unknown"
	}
	return r
}

// add takes a check in, unless it does not apply here, or another one says what is wrong.
func (r *Report) add(name string, c Check) {
	if c.Status != "" {
		c.Name = name
		r.Checks = append(r.Checks, c)
	}
}

func (r *Report) worstFirst() {
	slices.SortStableFunc(r.Checks, func(a, b Check) int {
		return cmp.Or(cmp.Compare(rank(a.Status), rank(b.Status)), cmp.Compare(a.order(), b.order()))
	})
}

// order is 1 for a check that only refers to the one with its cause, which is listed before it.
// Protection stays first: it is what a person looks for.
func (c Check) order() int {
	if c.Name != protectionCheck && strings.HasPrefix(c.Hint, "see check ") {
		return 1
	}
	return 0
}

// SeenBy is the report as a program of that version shows it: it says so where the agent
// that has looked is of another one.
func (r Report) SeenBy(program string) Report {
	r.Checks = slices.Clone(r.Checks)
	r.add(versionCheck, version(r.Version, program))
	r.worstFirst()
	return r
}

// Compare checks again outside the service what fails for the agent. If it works there, a setting of the
// service hides it from the agent, and no other fix helps. outside is called only if such a check fails.
func (r Report) Compare(outside func() (Report, error)) Report {
	compared := []string{"dbus", "logind", "runtimes", "cluster", "etcd", "plugin"}
	wrong := func(c Check) bool {
		return (c.Status == Fail || c.Status == Warn) && slices.Contains(compared, c.Name)
	}
	if !slices.ContainsFunc(r.Checks, wrong) {
		return r
	}
	other, err := outside()
	if err != nil {
		return r
	}
	r.Checks = slices.Clone(r.Checks)
	for i, c := range r.Checks {
		if wrong(c) && slices.ContainsFunc(other.Checks, func(o Check) bool { return o.Name == c.Name && o.Status == OK }) {
			r.Checks[i].Hint = "this works outside of hostler.service: `systemctl cat hostler` shows its drop-ins; remove the setting that hides it, such as InaccessiblePaths= or PrivateNetwork=, then systemctl daemon-reload && systemctl restart hostler"
		}
	}
	return r
}

// Failed reports whether a check failed.
func (r Report) Failed() bool { return r.Count(Fail) > 0 }

// Count is how many checks came to a verdict.
func (r Report) Count(s Status) int {
	n := 0
	for _, c := range r.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}

func rank(s Status) int { return slices.Index([]Status{Fail, Warn, Unknown, OK}, s) }

// protectionCheck is the name of the check that says whether a shutdown waits for pods.
const protectionCheck = "protection"

// NodeNameCheck is the name of a check that the status shows, too.
const NodeNameCheck = "node-name"

// checks lists all of them, in the order in which a person would look. Each name
// is one that docs/reference/doctor.md explains.
func checks() []struct {
	name  string
	judge func(Facts) Check // of no Status where it has nothing to say
} {
	return []struct {
		name  string
		judge func(Facts) Check
	}{
		{protectionCheck, protection},
		{"configuration", configuration}, // which keeps the agent from starting
		{"agent", agent},
		{versionCheck, func(Facts) Check { return Check{} }}, // SeenBy judges it
		{NodeNameCheck, NodeName},
		{"phases", phases},
		{"dbus", dbus},
		{"logind", logind},
		{"lock", lock},
		{"other-locks", otherLocks},
		{"delay", delay},
		{"delay-files", delayFiles},
		{"kubelet", kubelet},
		{"stop-first", stopFirst},
		{"unit", unit},
		{"unit-order", unitOrder},
		{"scopes", scopes},
		{"job-timeouts", jobTimeouts},
		{"bypasses", bypasses},
		{"other-reboots", otherReboots},
		{"watchdog", watchdog},
		{"runtimes", runtimes},
		{"podman", podman},
		{"not-started", notStarted},
		{"labels", labels},
		{"pressure", pressure},
		{"node-network", nodeNetwork},
		{"image-filesystem", imageFilesystem},
		{"collection", collection},
		{"cluster", clusterServer},
		{"cluster-credentials", clusterCredentials},
		{"cluster-clock", clusterClock},
		{"cluster-node", clusterNode},
		{"cluster-rights", clusterRights},
		{"etcd", etcdMembers},
		{"etcd-credentials", etcdCredentials},
		{"etcd-node", etcdNode},
		{"etcd-rights", etcdRights},
		{"plugin", pluginServes},
		{"plugin-abilities", pluginAbilities},
		{"plugin-node", pluginNode},
		{"network", network},
		{"last-shutdown", lastShutdown},
		{"state", state},
		{"conditions", conditions},
		{"server", serverRuns},
		{"server-store", serverStore},
		{"server-controllers", serverControllers},
		{"server-objects", serverObjects},
	}
}

// unchecked is a check that only the agent could make, for a host where none answers: check
// agent says why, and what to do.
func unchecked(f Facts) Check {
	why := "the agent is not running"
	if f.hangs() {
		why = "the agent does not answer"
	}
	return Check{Status: Unknown, Message: "not checked: " + why, Hint: "see check agent"}
}

// unknown is a check that lacks facts that systemd did not report, though it reported others.
func unknown(what string, why error) Check {
	return Check{
		Status: Unknown, Message: fmt.Sprintf("cannot check %s: systemd did not answer: %s", what, reason(why)),
		Hint: "run `hostler doctor` again in some seconds; if it stays: `systemctl is-system-running`, and `systemd-cgtop` to see the load",
	}
}

func ok(format string, args ...any) Check {
	return Check{Status: OK, Message: fmt.Sprintf(format, args...)}
}

func warn(hint, format string, args ...any) Check {
	return Check{Status: Warn, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

func fail(hint, format string, args ...any) Check {
	return Check{Status: Fail, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// faults collects what one check finds wrong.
type faults []Check

func (f *faults) add(c Check) { *f = append(*f, c) }

// or is the faults as one check of the worst verdict; without any it is fine.
func (f faults) or(fine Check) Check { return f.joined("; ", fine) }

// joined is the same with what stands between the messages, and between the fixes.
func (f faults) joined(by string, fine Check) Check {
	if len(f) == 0 {
		return fine
	}
	sum := Check{Status: Warn}
	var messages, hints []string
	for _, c := range f {
		if rank(c.Status) < rank(sum.Status) {
			sum.Status = c.Status
		}
		messages = append(messages, c.Message)
		if c.Hint != "" && !slices.Contains(hints, c.Hint) {
			hints = append(hints, c.Hint)
		}
	}
	sum.Message, sum.Hint = strings.Join(messages, by), strings.Join(hints, by)
	return sum
}
