package doctor

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/systemd"
)

func agent(f Facts) Check {
	if f.Agent.Answers {
		return ok("the agent answers, as pid %d", f.Agent.PID)
	}
	what := "hostler is not running"
	switch u := f.Systemd.Service; {
	case u.LoadState == masked:
		what = Service + " is masked"
	case f.hangs():
		what = "hostler hangs"
	case u.LoadState == "loaded":
		what = Service + " is " + u.ActiveState
	}
	lost := ""
	if len(f.Phases) > 0 && !f.Protection.Protected {
		lost = ", so that a shutdown would not wait for the pods"
	}
	return fail(f.orJournal(start(f)), "%s%s: %s", what, lost, f.Agent.Problem)
}

const versionCheck = "version"

// version compares the running agent and the running server with the program on disk.
func version(agent, server, program string) Check {
	found, same := faults{}, []string{}
	for _, running := range []struct {
		name, version string
		warning       Check
	}{
		{"agent", agent, OutdatedAgent(agent, program)},
		{"server", server, outdated("server", server, program, "hostler config check --server; if that finds no error: systemctl restart hostler-server")},
	} {
		switch {
		case running.warning.Status != "":
			found.add(running.warning)
		case running.version != "" && program != "":
			same = append(same, running.name)
		}
	}
	if len(found) == 0 && len(same) == 0 {
		return Check{}
	}
	return found.or(ok("%s and program are %s", strings.Join(same, ", "), program))
}

// OutdatedAgent warns if the running agent has another version than the program on disk. That is so after
// an upgrade whose new program rejected the configuration: the package then keeps the old agent running.
func OutdatedAgent(agent, program string) Check {
	return outdated("agent", agent, program, "hostler config check; if that finds no error: "+Facts{}.fixes().restartAgent())
}

func outdated(name, running, program, fix string) Check {
	if running == "" || program == "" || running == program {
		return Check{}
	}
	return warn(fix, "the running %s is %s, the program on disk is %s: it was not restarted, or rejected the configuration", name, running, program)
}

// configuration checks whether the files are effective. Without an agent, it checks whether they are
// valid, since an agent does not start with invalid files.
func configuration(f Facts) Check {
	trouble, fix := f.Configuration.Trouble(), f.Configuration.fix(f.fixes())
	switch {
	case trouble == "" && f.Agent.Answers:
		return ok("the effective configuration matches the files: %s and conf.d beside it", f.Configuration.path())
	case trouble == "":
		return ok("the files are valid: %s and conf.d beside it", f.Configuration.path())
	case !f.Agent.Answers:
		return fail(fix+"; then "+start(f), "%s\nthe other checks use the defaults", trouble)
	}
	return warn(fix, "%s", trouble)
}

// start is the hint that starts the service.
func start(f Facts) string {
	if u := f.Systemd.Service; u.LoadState == masked {
		return unmask(u, Service) + " && " + f.fixes().enable
	}
	if f.hangs() {
		return f.fixes().restartAgent()
	}
	return f.fixes().start
}

// orJournal adds the command that shows why a start fails.
func (f Facts) orJournal(start string) string {
	return start + "; if that fails: " + f.fixes().journal
}

// masked is the LoadState of a masked unit, which nobody can start.
const masked = "masked"

// unmask is the command that removes a unit's mask. Without --runtime, systemctl searches only /etc, not
// /run.
func unmask(u systemd.Unit, name string) string {
	if u.UnitFileState == "masked-runtime" {
		return "systemctl unmask --runtime " + name
	}
	return "systemctl unmask " + name
}

// unit checks hostler's service as systemd has loaded it.
func unit(f Facts) Check {
	u := f.Systemd.Service
	switch {
	case f.Systemd.Missing:
		return warn("configure the service manager of this host to start `hostler agent` at boot and to restart it", "no systemd on this host: nothing restarts the agent, or keeps its lock during a restart")
	case f.Systemd.Problem != "":
		return warn("see `systemctl is-system-running`; only root may use /run/systemd/private", "systemd did not answer: %s", f.Systemd.Problem)
	case u.Err != nil:
		return unknown("how "+Service+" is set up, and whether it is enabled", u.Err)
	case u.LoadState == masked && !f.Agent.Answers:
		return Check{} // check agent reports that
	case u.LoadState == masked:
		return fail(start(f), "%s is masked", Service)
	case u.LoadState != "loaded":
		return warn("install the package", "%s does not exist (%s): nothing restarts the agent, or keeps its lock during a restart", Service, u.LoadState)
	}
	var found faults
	if u.NeedDaemonReload {
		found.add(warn("systemctl daemon-reload && systemctl restart hostler", "%s has changed on disk since systemd read it", Service))
	}
	switch {
	case u.ActiveState == "active", int(u.MainPID) == f.Agent.PID: // a unit that is not active may be reloading, or draining at its stop
	case f.Agent.Answers:
		found.add(warn("stop it, then systemctl start hostler", "the agent that answers (pid %d) was not started by %s, which is %s", f.Agent.PID, Service, u.ActiveState))
	}
	if !slices.Contains([]string{"enabled", "enabled-runtime", "static", "linked", "alias", "generated", "indirect"}, u.UnitFileState) {
		found.add(warn("systemctl enable hostler", "%s is %s: it will not start at the next boot", Service, u.UnitFileState))
	}
	found = append(found, unitSettings(u)...)
	return found.or(ok("%s is %s and %s, and keeps the lock across its restarts", Service, u.ActiveState, u.UnitFileState))
}

// shortestStop is the shortest stop timeout with which the agent can still extend it.
const shortestStop = 10 * time.Second

// unitSettings checks the settings of the unit that a drop-in may have changed.
func unitSettings(u systemd.Unit) faults {
	var found faults
	where := u.FragmentPath
	if len(u.DropInPaths) > 0 {
		where += " and " + strings.Join(u.DropInPaths, ", ")
	}
	for _, s := range []struct {
		wrong       bool
		line, means string
	}{
		{!strings.HasPrefix(u.Type, "notify"), "Type=notify", "systemd does not wait for it to be ready"},
		{u.NotifyAccess == "none", "NotifyAccess=main", "systemd does not get its notifications: it cannot extend its stop timeout, or keep its lock across a restart"},
		{u.FileDescriptorStoreMax < 2, "FileDescriptorStoreMax=2", "its lock is lost during a restart"},
		{u.Restart == "no", "Restart=on-failure", "an agent that was killed is not restarted, and the host is unprotected"},
		{u.TimeoutStop > 0 && u.TimeoutStop < shortestStop, "TimeoutStopSec=30", "it is killed before it can extend its stop timeout"},
	} {
		if s.wrong {
			found.add(warn(set(u, "[Service]", s.line)+" && systemctl restart hostler", "%s lacks %s (%s): %s", Service, s.line, where, s.means))
		}
	}
	return found
}

// set is the hint that adds a line to a unit. `systemctl edit` writes override.conf. If systemd reads
// another drop-in after it, the line must go there.
func set(u systemd.Unit, section, line string) string {
	const reload = ", then systemctl daemon-reload"
	if n := len(u.DropInPaths); n > 0 && filepath.Base(u.DropInPaths[n-1]) > "override.conf" {
		return "set " + line + " under " + section + " in " + u.DropInPaths[n-1] + reload
	}
	return "systemctl edit " + strings.TrimSuffix(u.Name, ".service") + ", to set " + line + " under " + section + reload
}

// servicesByRuntime lists, by name of a runtime, the units that this runtime needs.
func servicesByRuntime() map[string][]string {
	return map[string][]string{
		"containerd": {"containerd.service"}, "cri-o": {"crio.service"}, "crio": {"crio.service"}, "docker": {"docker.service"},
		"podman": {"podman.socket"},
	}
}

// servicesByEndpoint lists units by prefix of the endpoint, for runtimes whose name is ambiguous.
// cri-dockerd calls itself docker, and k3s, RKE2, k0s and MicroK8s have their own containerd. The containerd
// of k3s, RKE2 and k0s needs no unit: it keeps running when their service stops.
func servicesByEndpoint() map[string][]string {
	return map[string][]string{
		"unix:///run/cri-dockerd.sock": {"cri-docker.service", "docker.service"}, "unix:///var/run/cri-dockerd.sock": {"cri-docker.service", "docker.service"},
		"unix:///run/k3s/": {}, "unix:///run/k0s/": {},
		"unix:///var/snap/microk8s/": {"snap.microk8s.daemon-containerd.service"},
	}
}

// servicesOf lists the units of a runtime; nil if they are not known.
func servicesOf(name, endpoint string) []string {
	for beginning, units := range servicesByEndpoint() {
		if strings.HasPrefix(endpoint, beginning) {
			return units
		}
	}
	return servicesByRuntime()[name]
}

// unitOrder checks that a shutdown without logind notification stops hostler before the runtimes.
func unitOrder(f Facts) Check {
	u := f.Systemd.Service
	if u.LoadState != "loaded" {
		return Check{}
	}
	var missing []string
	for _, r := range f.Runtimes.List {
		for _, s := range servicesOf(r.Name, r.Endpoint) {
			if !slices.Contains(u.After, s) && !slices.Contains(missing, s) {
				missing = append(missing, s)
			}
		}
	}
	if len(missing) > 0 {
		list := strings.Join(missing, " ")
		return warn("run `systemctl edit hostler` and set After="+list+" under [Unit]",
			"%s is not ordered after %s: a shutdown without logind notification would stop that before the pods", Service, list)
	}
	return ok("%s is stopped before the runtimes", Service)
}

// longestJob is systemd's default timeout of a shutdown. afterwards is the time for all units that stop
// after hostler.
const (
	longestJob = 30 * time.Minute
	afterwards = 5 * time.Minute
)

// jobTimeouts checks that systemd does not force a shutdown without logind notification before the
// phases end.
func jobTimeouts(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || len(f.Phases) == 0 {
		return Check{}
	}
	var found faults
	fine := ok("systemd does not force the shutdown before the phases end")
	enough := math.Ceil(max(longestJob, f.neededDelay()+afterwards).Minutes())
	for _, u := range f.Systemd.Targets {
		if u.Err != nil {
			fine = unknown("when systemd forces a shutdown", u.Err)
		}
		if u.JobTimeout > 0 && u.JobTimeout < f.neededDelay() {
			found.add(warn(set(u, "[Unit]", fmt.Sprintf("JobTimeoutSec=%.0fmin", enough)),
				"%s is forced after %v, but the phases take %v", u.Name, u.JobTimeout, f.neededDelay()))
		}
	}
	return found.or(fine)
}

func runtimes(f Facts) Check {
	var found faults
	for _, d := range f.Runtimes.Dead {
		if d.Unfit != "" {
			found.add(warn("upgrade it, or stop its containers yourself before a shutdown", "unsupported runtime at %s: its containers are not stopped in order: %s", d.Path, d.Unfit))
			continue
		}
		found.add(warn("check its service", "%s exists, but no runtime answers there", d.Path).noAccess())
	}
	for _, g := range f.Runtimes.Gone {
		found.add(warn(f.startOf(g.Name, g.Endpoint), "runtime %s at %s ended at %s, and is no longer expected", g.Name, g.Endpoint, g.Since.UTC().Format(time.RFC3339)))
	}
	var names []string
	for _, r := range f.Runtimes.List {
		names = append(names, strings.TrimSpace(r.Name+" "+r.Version)+" at "+r.Endpoint)
		if r.Ready {
			continue
		}
		fix := f.startOf(r.Name, r.Endpoint)
		if r.bare() {
			fix = "see to " + r.Endpoint + ": ls -ld " + r.Endpoint
		}
		found.add(fail(fix, "runtime %s at %s is not ready, and its pods cannot be stopped in order: %s", r.Name, r.Endpoint, r.Message).noAccess())
	}
	switch {
	case !f.Runtimes.Checked:
		return warn("run `hostler doctor` again in some seconds", "no runtime checked yet")
	case len(names) == 0:
		found.add(warn("start one, or name its socket under runtimes in "+f.Configuration.where("runtimes"), "no container runtime found: no pods to stop in order").noAccess())
	}
	return found.or(ok("ready: %s", strings.Join(names, ", ")))
}

// startOf is the hint that starts a runtime.
func (f Facts) startOf(name, endpoint string) string {
	units := servicesOf(name, endpoint)
	switch {
	case units == nil:
		return f.fixes().startRuntime(name)
	case len(units) == 0:
		return "check the service of this containerd: k3s, rke2-server, rke2-agent or k0s"
	}
	return f.fixes().startRuntime(strings.TrimSuffix(units[0], ".service"))
}

func lastShutdown(f Facts) Check {
	ended, found := endOf(f.Last), f.restartFaults()
	if len(found) == 0 {
		return ended
	}
	if ended.Status != OK {
		found.add(ended)
	}
	return found.joined("\n", Check{})
}

// endOf judges how a shutdown ended.
func endOf(r *journal.Record) Check {
	switch {
	case r == nil:
		return ok("none recorded")
	case r.Graceful && r.Killed() > 0:
		message := fmt.Sprintf("pods killed at the end of their grace period: %d of %d", r.Killed(), len(r.Pods))
		if r.Shortened != nil {
			message += "; " + r.Shortened.String()
		}
		return warn("run `hostler ps --last-shutdown`, which names what limited the grace period; raise that limit, or have the containers end on the stop signal", "%s", message)
	case r.Graceful && r.Shortened != nil:
		return ok("it was graceful, with %s; %s", countPods(len(r.Pods)), r.Shortened)
	case r.Graceful:
		return ok("it was graceful, with %s", countPods(len(r.Pods)))
	case !r.CancelledAt.IsZero():
		return ok("it was cancelled")
	default:
		message := "it was not graceful"
		if r.Error != "" {
			message += ": " + r.Error
		}
		return warn("run `hostler ps --last-shutdown` to see how each pod ended", "%s", message)
	}
}

func countPods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// restartFaults names the containers that a shutdown stopped and that cannot be restarted, and those that
// still wait, with the reason.
func (f Facts) restartFaults() (found faults) {
	if f.Guard == nil {
		return nil
	}
	var down, waiting, unreachable []string // unreachable: runtimes that do not answer
	for _, r := range f.Guard.Restarts {
		name := cmp.Or(r.Name, r.ID)
		switch {
		case r.Outcome == journal.RestartFailed:
			down = append(down, name)
		case r.Outcome == "" && r.Reason != "" && !r.ByUnit:
			waiting = append(waiting, fmt.Sprintf("%s (%s)", name, r.Reason))
			if r.Reason == journal.AwaitsRuntime && !slices.Contains(unreachable, r.Runtime) {
				unreachable = append(unreachable, r.Runtime)
			}
		}
	}
	if len(down) > 0 {
		found.add(warn("run `hostler ps --last-shutdown` for the reasons; fix them, then start the containers yourself", "containers that cannot be restarted: %s", strings.Join(down, ", ")))
	}
	later := "containers not restarted yet: " + strings.Join(waiting, ", ")
	switch {
	case len(unreachable) > 0:
		var starts []string
		for _, name := range unreachable {
			starts = append(starts, f.startOfUnreachable(name))
		}
		found.add(warn(strings.Join(starts, "; "), "%s; no answer from %s", later, strings.Join(unreachable, ", ")))
	case len(waiting) > 0:
		found.add(warn("wait: hostler starts each container once its units are up; see `systemctl list-jobs` and `systemctl --failed`", "%s", later))
	}
	return found
}

// startOfUnreachable is the hint for a runtime that has not answered since the boot: its unit may not be
// enabled.
func (f Facts) startOfUnreachable(name string) string {
	endpoint := ""
	if i := slices.IndexFunc(f.Runtimes.List, func(r Runtime) bool { return r.Name == name }); i >= 0 {
		endpoint = f.Runtimes.List[i].Endpoint
	}
	fix := f.startOf(name, endpoint)
	if units := servicesOf(name, endpoint); !f.Systemd.Missing && len(units) > 0 {
		fix += "; to have it started at boot: systemctl enable " + strings.TrimSuffix(units[0], ".service")
	}
	return fix
}

// leastFree is several times the size of hostler's own files.
const leastFree = 64 << 20

func state(f Facts) Check {
	if f.State.Problem != "" {
		return warn("make sure that the directory exists, is writable and is not full", "hostler may lose its state: %s", f.State.Problem)
	}
	if f.State.Measured && f.State.Free < leastFree {
		return warn("`df -h "+f.State.Path+"`, and free space", "%s has %s free: hostler may not be able to save its state and shutdown records", f.State.Path, gc.Size(f.State.Free))
	}
	if !f.State.Measured {
		return ok("%s is writable", f.State.Path)
	}
	return ok("%s is writable and has %s free", f.State.Path, gc.Size(f.State.Free))
}

// conditions reports the faults of custom checks: each message is on a line, and each hint too.
func conditions(f Facts) Check {
	c := f.Conditions
	if found := warnings(slices.Concat(c.Problems, c.Broken, c.Unknown)); len(found) > 0 {
		sum := found.joined("\n", Check{})
		if len(c.Problems)+len(c.Unknown) > 0 {
			sum.Hint += "\nif a check passes when you run it but not in the service: the service has its own /tmp and /var/tmp and no devices (/usr/share/doc/hostler/docs/howto/custom-condition.md)"
		}
		return sum
	}
	switch {
	case c.Number == 0:
		return Check{}
	case len(c.Local) > 0:
		return ok("%d custom; %s shown on this host only: on a Node of the kubelet, hostler writes only hostler.io/* conditions", c.Number, strings.Join(c.Local, ", "))
	}
	return ok("%d custom, in %s", c.Number, c.Directory)
}
