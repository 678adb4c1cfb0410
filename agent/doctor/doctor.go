// Package doctor answers the question of a person on call: is this host healthy, and if not, which
// command fixes it?
//
// It owns the checks, each with a verdict, a message and a hint. Examine decides by facts alone. Gather
// collects them with or without an agent. The package never changes the host.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Status is a check's verdict.
type Status string

// The verdicts. Fail: at a shutdown, pods lose grace period, or nobody can say whether they do. Unknown:
// only the agent knows, and none answers (check agent fails then); or systemd did not answer in time.
const (
	OK      Status = "ok"
	Unknown Status = "unknown"
	Warn    Status = "warn"
	Fail    Status = "fail"
)

// Check is the result of one check.
type Check struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Message string `json:"message"` // what was found
	Hint    string `json:"hint"`    // the fix: a command or a change; empty if the check is ok
	// NoAccess reports that the agent cannot connect, or cannot read a file. A setting of the service may
	// be the cause. An answer that refuses the agent is no such fault: it has another cause.
	NoAccess bool `json:"noAccess,omitempty"`
}

// Report has the results of all checks, the worst first, and causes before their effects.
type Report struct {
	// Protected reports whether a shutdown now would wait until the pods have stopped, for all of
	// their configured time.
	Protected bool    `json:"protected"`
	Checks    []Check `json:"checks"`
	// Message says why some checks were not possible; empty if all were.
	Message string `json:"message,omitempty"`
	// Version is the agent's; empty if no agent answers.
	Version string `json:"version,omitempty"`
	// ServerVersion is the version of the server on this host; empty if none answers.
	ServerVersion string `json:"serverVersion,omitempty"`
}

// Examine runs all checks on facts.
func Examine(f Facts) Report {
	r := Report{Protected: f.Protection.Protected && protection(f).Status == OK, Checks: []Check{}, Version: f.Agent.Version}
	if s := f.serverStatus(); s != nil {
		r.ServerVersion = s.Version
	}
	for _, c := range checks() {
		r.add(c.name, c.judge(f))
	}
	r.worstFirst()
	if !f.Agent.Answers {
		r.Message = "no agent answers; checks that need it are unknown"
	}
	return r
}

// add adds a check. It ignores one without Status, which does not apply to this host.
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

// order is 1 for a check whose hint is to see another check, which is listed before it. Protection stays
// first: people look for it.
func (c Check) order() int {
	if c.Name != protectionCheck && strings.HasPrefix(c.Hint, "see check ") {
		return 1
	}
	return 0
}

// CheckVersion adds the check version to a copy of the report. The check warns if the agent or the server
// has another version than program, which shows the report.
func (r Report) CheckVersion(program string) Report {
	r.Checks = slices.Clone(r.Checks)
	r.add(versionCheck, version(r.Version, r.ServerVersion, program))
	r.worstFirst()
	return r
}

// Compare repeats checks outside the service if the agent has no access to something. If a check is ok
// there, a setting of the service hides that from the agent. The hint is then to remove that setting, since
// nothing else helps. Compare calls outside only if there is such a check.
func (r Report) Compare(outside func() (Report, error)) Report {
	if !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.NoAccess }) {
		return r
	}
	other, err := outside()
	if err != nil {
		return r
	}
	r.Checks = slices.Clone(r.Checks)
	for i, c := range r.Checks {
		if c.NoAccess && slices.ContainsFunc(other.Checks, func(o Check) bool { return o.Name == c.Name && o.Status == OK }) {
			r.Checks[i].Hint = "this works outside of hostler.service: `systemctl cat hostler` shows its drop-ins; remove the setting that hides it, such as InaccessiblePaths= or PrivateNetwork=, then systemctl daemon-reload && systemctl restart hostler"
		}
	}
	return r
}

// Failed reports whether a check failed.
func (r Report) Failed() bool { return r.Count(Fail) > 0 }

// Count is how many checks have a verdict.
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

// protectionCheck is the name of check protection.
const protectionCheck = "protection"

// NodeNameCheck is the name of a check that `hostler status` also shows.
const NodeNameCheck = "node-name"

// checks lists all checks, in the order in which a person would go through them.
// docs/reference/doctor.md explains each name.
func checks() []struct {
	name  string
	judge func(Facts) Check // returns no Status if the check does not apply
} {
	return []struct {
		name  string
		judge func(Facts) Check
	}{
		{protectionCheck, protection},
		{"configuration", configuration}, // a fault here keeps the agent from starting
		{"agent", agent},
		{versionCheck, func(Facts) Check { return Check{} }}, // CheckVersion judges it
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
		{"reboot", reboot},
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

// unchecked is a check that needs the agent, on a host where no agent answers: check agent has the
// reason and the fix.
func unchecked(f Facts) Check {
	why := "the agent is not running"
	if f.hangs() {
		why = "the agent does not answer"
	}
	return Check{Status: Unknown, Message: "not checked: " + why, Hint: "see check agent"}
}

// unknown is a check that lacks facts: systemd reported others, but not these.
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

// noAccess marks a fault whose cause may be a setting of the service.
func (c Check) noAccess() Check {
	c.NoAccess = true
	return c
}

// faults collects the faults that one check finds.
type faults []Check

func (f *faults) add(c Check) { *f = append(*f, c) }

// or joins the faults to one check with the worst verdict. Without faults, it returns fine.
func (f faults) or(fine Check) Check { return f.joined("; ", fine) }

// joined is or with a separator between messages, and between hints.
func (f faults) joined(by string, fine Check) Check {
	if len(f) == 0 {
		return fine
	}
	sum := Check{Status: Warn, NoAccess: true} // faults with different causes keep their own fixes
	var messages, hints []string
	for _, c := range f {
		if rank(c.Status) < rank(sum.Status) {
			sum.Status = c.Status
		}
		sum.NoAccess = sum.NoAccess && c.NoAccess
		messages = append(messages, c.Message)
		if c.Hint != "" && !slices.Contains(hints, c.Hint) {
			hints = append(hints, c.Hint)
		}
	}
	sum.Message, sum.Hint = strings.Join(messages, by), strings.Join(hints, by)
	return sum
}
