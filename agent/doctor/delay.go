package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"hostler.io/hostler/internal/few"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/logindconf"
)

const (
	fixBelow      = "see the checks below"
	logindService = "systemd-logind.service"
)

// protection says whether a shutdown waits for the pods. The other checks explain why.
func protection(f Facts) Check {
	switch p := f.Protection; {
	case p.Protected && f.falselyArmed():
		return fail(fixBelow, "a shutdown would not wait for the pods, and hostler has not detected it yet")
	case p.Reason == status.ReasonArmed && len(plan.Untimed(f.Phases)) > 0:
		return warn("see check phases", "%s", p.Message)
	case p.Protected:
		return ok("%s", p.Message)
	case len(f.Phases) == 0:
		return warn("to protect pods, set "+f.Configuration.protection()+"; then "+f.fixes().restart,
			"a shutdown does not wait for the pods, as configured")
	case !f.Agent.Answers:
		return unchecked(f)
	case p.Reason == status.ReasonDelayTooShort:
		return fail(fixBelow, "a shutdown would wait for the pods, but less time than configured")
	case p.Reason == status.ReasonPodsOutOfReach, p.Reason == status.ReasonStarting:
		return fail(fixBelow, "%s", p.Message)
	case p.Reason == status.ReasonNoBus, p.Reason == status.ReasonNoLogind:
		return fail(fixBelow, "a shutdown would not wait until the pods have stopped (%s)", p.Reason)
	default:
		return fail("see `hostler status` and "+f.fixes().journal, "%s", p.Message)
	}
}

// protection lists the settings that switch protection on, of the keys that a file sets: the defaults
// of the others protect pods.
func (c Configuration) protection() string {
	all := []setting{{"shutdown.enabled", "shutdown.enabled: auto"}, {"shutdown.gracePeriod", "shutdown.gracePeriod above 0s"}}
	given := slices.DeleteFunc(slices.Clone(all), func(s setting) bool { return c.setBy(s.key) == "" })
	if len(given) == 0 { // the files were not read
		given = all
	}
	return c.places(given)
}

// falselyArmed reports that the guard says armed although D-Bus, logind or the lock is lost: the guard
// checks them only at intervals.
func (f Facts) falselyArmed() bool {
	return f.Guard != nil && f.Guard.State == shutdown.Armed &&
		slices.ContainsFunc([]Check{dbus(f), logind(f), lock(f)}, func(c Check) bool { return c.Status == Fail })
}

func phases(f Facts) Check {
	if len(f.Phases) == 0 {
		return Check{}
	}
	first := ""
	if lead := f.stopFirstTime(); lead > 0 {
		first = fmt.Sprintf(" and %v for services before", lead)
	}
	if untimed := plan.Untimed(f.Phases); len(untimed) > 0 && !f.delegated() {
		return warn("in shutdown.byPriority ("+f.Configuration.where("shutdown.byPriority")+"), set a gracePeriod above 0s, or remove the entry, so that its pods stop in another phase; then "+f.fixes().restart,
			"pods of phase %s may be killed at once: its gracePeriod is 0s", strings.Join(untimed, ", "))
	}
	return ok("pods have %v to stop: %s; with %v for the end%s, logind must grant %v",
		plan.Total(f.Phases), describe(f.Phases), plan.Margin, first, f.neededDelay())
}

// describe lists the phases with their grace periods.
func describe(phases []plan.PhaseSpec) string {
	var parts []string
	for _, p := range phases {
		parts = append(parts, fmt.Sprintf("%s %v", p.Name, p.Grace))
	}
	return strings.Join(parts, ", then ")
}

func dbus(f Facts) Check {
	if f.Logind.Bus == nil {
		return ok("the system bus answers")
	}
	hint := f.fixes().startBus
	if !f.Systemd.Missing && errors.Is(f.Logind.Bus, fs.ErrNotExist) {
		hint += "; if they are not installed: apt-get install dbus, or dnf install dbus"
	}
	return warnIfUnprotected(f, fail(hint, "%v", f.Logind.Bus).noAccess())
}

func logind(f Facts) Check {
	switch {
	case f.Logind.Bus != nil:
		return Check{}
	case f.Logind.Login != nil && f.Systemd.Login.LoadState == masked:
		return warnIfUnprotected(f, fail(unmask(f.Systemd.Login, logindService)+" && "+f.fixes().restartLogind, "%s is masked", logindService))
	case f.Logind.Login != nil:
		return warnIfUnprotected(f, fail(f.fixes().startLogind, "%v", f.Logind.Login))
	}
	if f.Logind.Scheduled != "" {
		return warn("to cancel it: `shutdown -c`", "systemd-logind will start a %s at %s", f.Logind.Scheduled, f.Logind.Begins.Format("2006-01-02 15:04 MST"))
	}
	return ok("systemd-logind is on the bus")
}

// warnIfUnprotected lowers a fault to a warning on a host where shutdown protection is switched off.
func warnIfUnprotected(f Facts, c Check) Check {
	if len(f.Phases) == 0 {
		c.Status = Warn
	}
	return c
}

// reached reports that logind answered.
func (l Logind) reached() bool { return l.Bus == nil && l.Login == nil }

func lock(f Facts) Check {
	if !f.Logind.reached() {
		return Check{}
	}
	n := len(f.Logind.Own)
	switch {
	case !f.Agent.Answers && n > 0:
		return warn(start(f), "logind lists a hostler lock of pid %d, but no agent answers: a shutdown would wait for it needlessly, up to %s",
			f.Logind.Own[0].PID, Span(f.Logind.Granted))
	case !f.Agent.Answers:
		return unchecked(f)
	case len(f.Phases) == 0 || f.delegated():
		if n > 0 {
			return warn(f.fixes().restartAgent(), "logind lists an unneeded hostler lock of pid %d: a shutdown would wait for it needlessly", f.Logind.Own[0].PID)
		}
		return Check{}
	}
	switch f.Guard.State {
	case shutdown.Armed:
	case shutdown.Disarmed:
		switch f.Protection.Reason {
		case status.ReasonStarting, status.ReasonDisarmed,
			status.ReasonNoBus, status.ReasonNoLogind: // D-Bus and logind answer by now
			return fail("wait a few seconds, and run `hostler doctor` again; if it stays: "+f.fixes().restartAgent(),
				"hostler is not armed yet, and retries within %v; last error: %s", shutdown.LongestPause, f.Guard.Reason)
		}
		return fail(f.fixes().restartAgent(), "hostler is not armed: %s", f.Guard.Reason)
	default:
		return Check{} // a shutdown is in progress, and its record says more
	}
	switch own := f.Logind.Own; {
	case n == 0:
		return fail(f.fixes().restartAgent(), "hostler should hold the shutdown lock, but logind does not list it")
	case !f.Logind.Held:
		return fail(f.fixes().restartAgent(), "logind lists a lock named hostler of pid %d, but hostler does not hold it", own[0].PID)
	case n > 1:
		return warn(f.fixes().restartAgent(), "logind lists %d hostler locks, and a shutdown would wait for all of them", n)
	case own[0].PID == 0: // logind does not know the process
		return ok("hostler holds the shutdown lock that the service manager kept")
	case int(own[0].PID) != f.Agent.PID:
		return ok("hostler holds the shutdown lock that its process %d took and the service manager kept", own[0].PID)
	}
	return ok("hostler holds the shutdown lock, as pid %d", f.Agent.PID)
}

// mostLocks is how many locks of others are named.
const mostLocks = 5

// otherLocks lists the other processes that delay or block a shutdown.
func otherLocks(f Facts) Check {
	if !f.Logind.reached() {
		return Check{}
	}
	var delays, blocks []string
	for _, k := range f.Logind.Locks {
		if !k.Inhibits("shutdown") || contains(f.Logind.Own, k) {
			continue
		}
		text := fmt.Sprintf("%.100s (pid %d, user %d, %.100q)", k.Who, k.PID, k.UID, k.Why)
		if k.Mode == "delay" {
			delays = append(delays, text)
		} else {
			blocks = append(blocks, text)
		}
	}
	delayText := ""
	if len(delays) > 0 {
		delayText = "a shutdown also waits for " + few.Names(delays, mostLocks)
	}
	switch {
	case len(blocks) > 0:
		return warn("wait until the process ends, or stop it: until then a reboot may be refused",
			"%s", strings.TrimSuffix("shutdowns are blocked by "+few.Names(blocks, mostLocks)+"; "+delayText, "; "))
	case delayText != "":
		return ok("%s", delayText)
	}
	return ok("no other process delays or blocks a shutdown")
}

func contains(locks []systemd.InhibitorLock, k systemd.InhibitorLock) bool {
	for _, o := range locks {
		if o == k {
			return true
		}
	}
	return false
}

// delay compares the delay that logind grants with the duration of the phases.
func delay(f Facts) Check {
	needed, files := f.neededDelay(), f.Logind.Files
	switch {
	case !f.Logind.reached(), needed == 0, f.delegated():
		return Check{}
	case !f.Agent.Answers: // an agent would raise the limit
		if hint := obstacle(files, f); hint != "" {
			return fail(hint, "the phases take %v, and hostler could not raise logind's limit to that", needed)
		}
		return Check{}
	case f.Logind.Granted >= needed:
		return ok("logind grants %s; the phases take %v", grant(f.Logind), needed)
	}
	fitted := plan.Fit(f.Phases, (&shutdown.First{Names: f.StopFirst}).Left(f.Logind.Granted))
	hint := obstacle(files, f)
	switch {
	case hint != "":
	case f.Guard.State == shutdown.Disarmed:
		hint = "see the check lock: hostler raises the limit when it is armed"
	case files.Effective.Max < needed && f.Logind.WriteHint != "":
		hint = f.Logind.WriteHint
	default: // the files are fine: logind has not read them, or hostler has not written its drop-in
		hint = f.fixes().restartLogind + "; where that does not help: " + f.fixes().journal
	}
	if f.Logind.Granted <= 0 {
		return fail(hint, "logind grants %s, of the %v that the phases take: it does not wait, and pods are stopped together with services", grant(f.Logind), needed)
	}
	return fail(hint, "logind grants %s, of the %v that the phases take: they are shortened to %s", grant(f.Logind), needed, describe(fitted))
}

// obstacle is the hint if another file makes hostler's drop-in ineffective, or empty.
func obstacle(files logindconf.Delay, f Facts) string {
	switch after := files.After; {
	case files.Broken != "" && files.Unreadable != nil, files.Broken != "" && after.Source == "" && files.Effective.Source != systemd.DropInPath:
		return fmt.Sprintf("fix or remove %s, where logind stops reading; then %s", files.Broken, f.fixes().restartLogind)
	case files.MaskedBy != "":
		return fmt.Sprintf("rm %s: it masks %s", files.MaskedBy, systemd.DropInPath)
	case after.Source != "" && after.Max < f.neededDelay():
		return fmt.Sprintf("%s sets InhibitDelayMaxSec= to %v and is read after %s: raise it there to %.0f or more, or remove the line; then %s",
			after.Source, after.Max, systemd.DropInPath, math.Ceil(f.neededDelay().Seconds()), f.fixes().restartLogind)
	}
	return ""
}

// grant is the delay that logind grants. It names the file that sets the delay if logind has read it.
func grant(l Logind) string {
	if l.Granted != l.Files.Effective.Max {
		return Span(l.Granted)
	}
	return source(l.Files.Effective)
}

// source is a delay and the file that sets it.
func source(s logindconf.Setting) string {
	if s.Source == "" {
		return fmt.Sprintf("%s, its default", Span(s.Max))
	}
	return fmt.Sprintf("%s, set by %s", Span(s.Max), s.Source)
}

// delayFiles checks the delay that logind would grant after it reads its files again.
func delayFiles(f Facts) Check {
	files := f.Logind.Files
	var found faults
	if files.Unreadable != nil {
		found.add(warn("fix or remove the unreadable files", "cannot read all configuration files of logind: %s", oneLine(files.Unreadable)))
	}
	if files.Broken != "" {
		found.add(warn("fix or remove "+files.Broken, "%s is damaged or unreadable, and logind reads nothing after it", files.Broken))
	}
	for _, i := range files.Invalid {
		found.add(warn("write a duration as in systemd.time(7), such as InhibitDelayMaxSec=45", "%s sets InhibitDelayMaxSec=%s, which logind ignores", i.Path, i.Value))
	}
	wanted := len(f.Phases) > 0 && !f.delegated()
	switch {
	case f.hangs():
	case files.DropIn && !f.Agent.Answers && f.Kubelet.Lock == nil:
		found.add(warn(start(f)+", or rm "+systemd.DropInPath+" and "+f.fixes().restartLogind,
			"%s was left by an agent that did not exit cleanly", systemd.DropInPath))
	case files.DropIn && len(f.Phases) == 0:
		found.add(warn(f.fixes().restart, "%s is not needed: protection is switched off", systemd.DropInPath))
	case f.Agent.Answers && wanted && f.Logind.reached() && f.Logind.Granted >= f.neededDelay() && files.Effective.Max < f.neededDelay():
		hint := cmp.Or(obstacle(files, f), f.Logind.WriteHint, f.fixes().restart+", which writes "+systemd.DropInPath+" again")
		found.add(warn(hint, "logind grants %s now, but would grant only %s, after it has reloaded its files",
			Span(f.Logind.Granted), source(files.Effective)))
	case wanted && !f.Logind.reached() && obstacle(files, f) != "": // report it now, not only after logind is fixed
		found.add(warn(obstacle(files, f), "logind would grant %s of the %v that the phases take", source(files.Effective), f.neededDelay()))
	case files.MaskedBy != "" && f.Logind.Granted >= f.neededDelay() && wanted:
		found.add(warn("rm "+files.MaskedBy, "%s masks %s, which is not needed now", files.MaskedBy, systemd.DropInPath))
	}
	// Check delay reports a limit that is too short. Without systemd, elogind reads other files.
	covered := delay(f).Status == Fail && files.Effective.Max == f.Logind.Granted
	if len(found) == 0 && (covered || f.Systemd.Missing) {
		return Check{}
	}
	return found.or(ok("by its files, logind grants %s", source(files.Effective)))
}

// oneLine writes joined errors on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// kubelet reports whether the kubelet or hostler guards the shutdown, and whether logind grants the
// time that the kubelet needs.
func kubelet(f Facts) Check {
	k, granted := f.Kubelet, f.Logind.Granted
	restart := f.fixes().kubelet
	var found faults
	switch {
	case k.Evidence == "" && len(k.Refused) == 0:
		return Check{}
	case k.Evidence == "": // name only the first: any user can start more of them
		return warn("run the kubelet as a system service", "%v is ignored: it %s", k.Refused[0], k.Refused[0].Untrusted)
	}
	if k.Fault != "" {
		found.add(warn("correct the file", "cannot read the shutdown settings of the kubelet: %s", k.Fault))
	}
	switch {
	case !f.Logind.reached():
	case k.Lock == nil && k.Grace > 0:
		found.add(warn(restart, "%s should guard the shutdown (%s: %v), but holds no lock", k.Evidence, k.Config, k.Grace))
	case k.Lock != nil && k.Grace > granted && f.Logind.Files.Effective.Source == systemd.DropInPath:
		found.add(fail("rm "+systemd.DropInPath+" && "+f.fixes().restartLogind+" && "+f.fixes().kubelet,
			"the kubelet needs %v at a shutdown (%s), but %s of hostler limits logind to %v", k.Grace, k.Config, systemd.DropInPath, granted))
	case k.Lock != nil && k.Grace > granted:
		effective := f.Logind.Files.Effective
		hint := fmt.Sprintf("raise InhibitDelayMaxSec= in %s to %.0f or more, then %s", effective.Source, math.Ceil(k.Grace.Seconds()), f.fixes().restartLogind)
		switch {
		case effective.Max >= k.Grace: // logind has not read its files
			hint = f.fixes().restartLogind
		case effective.Source == "": // at its start, the kubelet writes a file
			hint = restart
		}
		found.add(fail(hint, "the kubelet needs %v at a shutdown (%s), but logind grants %s", k.Grace, k.Config, grant(f.Logind)))
	}
	who := "hostler guards the shutdown"
	if k.Lock != nil {
		who = fmt.Sprintf("the kubelet guards the shutdown (lock of pid %d), and hostler yields to it", k.Lock.PID)
	}
	if k.Grace > 0 {
		who += fmt.Sprintf("; %s gives it %v, and logind grants %s", k.Config, k.Grace, Span(granted))
	}
	return found.or(ok("%s", strings.TrimPrefix(k.Evidence+": "+who, ": ")))
}
