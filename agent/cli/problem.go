package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/reboots"
)

// headline returns the first line: the node and its worst problem.
func headline(out *output, s api.Status) string {
	if s.Node == nil {
		return out.yellow("starting") + ": the host has not been checked yet"
	}
	ready := controlplane.ConditionOf(s.Node, corev1.NodeReady)
	word := out.yellow("not known to be Ready")
	switch {
	case ready == nil:
		return s.Node.Name + " is " + word
	case ready.Status == corev1.ConditionTrue:
		word = out.green("Ready")
	case ready.Reason == status.ReasonDraining:
		word = out.red("SHUTTING DOWN")
	case ready.Status == corev1.ConditionFalse:
		word = out.red("NOT READY")
	}
	if s.Node.Spec.Unschedulable {
		word += out.yellow(",SchedulingDisabled") // as kubectl prints it
	}
	word += ", for " + age(out.now().Sub(ready.LastTransitionTime.Time))
	if s.ControlPlane.Overdue != "" {
		return s.Node.Name + ": " + out.red("LEASE EXPIRED") + "; local status " + word
	}
	return s.Node.Name + " is " + word
}

// severity is the severity of a problem, the worst first.
type severity int

const (
	leaseExpired severity = iota // other programs treat the host as dead
	noPods                       // the host is not Ready
	pressed                      // a pressure condition is true
	unprotected                  // a shutdown kills pods
	unreported                   // the control plane gets no report
	unseen                       // the state of the host is unknown
	failing                      // a loop fails
	info                         // pods and the control plane are not affected
)

// problem is one problem of the host.
type problem struct {
	what     string    // subject; empty if the problem explains the verdict
	since    time.Time // start; zero if it is unknown or in the text
	text     string
	measured time.Time // when the figure in text was measured; zero if it has none
	next     string    // next step; empty if the text has it
	severity severity
	causes   []api.Cause // faults that the text reports
}

// print writes the problem, indented and wrapped, and below it the next step.
func (w problem) print(t *table, out *output) {
	paint := out.red
	if w.severity == info {
		paint = out.yellow
	}
	text := w.text
	if !w.measured.IsZero() {
		text += ", measured " + out.ago(w.measured)
	}
	if w.what != "" {
		head := paint(w.what)
		if !w.since.IsZero() {
			head += ", for " + age(out.now().Sub(w.since))
		}
		text = strings.TrimSuffix(head+": "+text, ": ")
	}
	out.indented(t, "  ", text)
	if w.next != "" {
		out.indented(t, "    ", "next: "+w.next)
	}
}

// indented writes text, wrapped to the screen. All lines after the first one are indented further.
func (o *output) indented(t *table, indent, text string) {
	text = t.once(text)
	lines := strings.Split(text, "\n")
	if !o.wide() {
		lines = wrap(text, screenWidth-len(indent)-2)
	}
	for i, line := range lines {
		if i == 1 {
			indent += "  "
		}
		t.line("%s", indent+line)
	}
}

// problems lists each problem once, the worst first, and each next step once.
func problems(out *output, s api.Status) []problem {
	var list []problem
	if s.Node != nil {
		list = conditionProblems(s)
	}
	list = append(list, fleetProblems(s, list)...)
	for _, l := range s.Loops {
		causes := causesOf(l.Runtimes)
		if l.Cause != "" {
			causes = append(causes, l.Cause)
		}
		if !l.Healthy && !covered(list, causes...) && !anyDown(s, l.Runtimes) {
			list = append(list, problem{what: "loop " + l.Name, text: firstLine(l.LastError), next: "`" + logOfAgent + "`", severity: failing, causes: causes})
		}
	}
	if text := firstLine(s.ImageGC.Message); text != "" && !covered(list, causesOf(s.ImageGC.Runtimes)...) && !anyDown(s, s.ImageGC.Runtimes) {
		list = append(list, problem{what: "images and containers", text: text, next: "`hostler doctor`", severity: failing})
	}
	list = append(list, checkProblems(s.CustomConditions, list)...)
	list = append(list, infos(out, s)...)
	slices.SortStableFunc(list, func(a, b problem) int { return cmp.Compare(a.severity, b.severity) })
	for i := range list {
		if commandBegins.MatchString(list[i].text) { // the commands are the next step
			list[i].next = ""
		}
		if slices.ContainsFunc(list[:i], func(w problem) bool { return w.next == list[i].next }) {
			list[i].next = ""
		}
	}
	return list
}

const (
	logOfAgent = "journalctl -u hostler -n 50"
	// fresh is how long an unexpected reboot is shown as a problem.
	fresh = 24 * time.Hour
)

// fleetProblems lists problems with the control plane that list does not contain.
func fleetProblems(s api.Status, list []problem) []problem {
	next := "`" + logOfAgent + "`"
	if s.ControlPlane.Type != "embedded" {
		next = "`hostler doctor`"
	}
	c, known := s.ControlPlane, len(list)
	list = slices.Clip(list) // so that append does not change the caller's list
	if c.Overdue != "" {
		list = append(list, problem{what: "heartbeat", text: c.Overdue, next: next, severity: leaseExpired, causes: []api.Cause{c.OverdueCause}})
	}
	if c.Paused != "" {
		list = append(list, problem{what: "control plane", text: c.Paused, severity: info})
	}
	if s.LeasePace != nil {
		for _, f := range s.LeasePace.Faults {
			list = append(list, problem{what: "lease", text: f.Message, next: f.Fix, severity: info})
		}
	}
	for _, d := range s.Drift {
		list = append(list, problem{what: "drift", text: d.Message, next: "`" + d.Fix + "`", severity: info})
	}
	if c.Credentials != "" && !covered(list, c.CredentialsCause) {
		list = append(list, problem{what: "credentials", text: c.Credentials, next: next, severity: unreported, causes: []api.Cause{c.CredentialsCause}})
	}
	if c.LastError != "" && !covered(list, c.Causes...) {
		text := c.LastError
		if slices.Equal(c.Causes, []api.Cause{api.CauseUnreachable}) {
			text = "not available, so that the Node, Lease and Events of this host are not written there: " + strings.Replace(text, "control plane unavailable: ", "", 1)
		}
		list = append(list, problem{what: "control plane", text: text, next: next, severity: unreported, causes: c.Causes})
	}
	for i := range list[known:] {
		if w := &list[known+i]; slices.Contains(w.causes, api.CauseApproval) || slices.Contains(w.causes, api.CauseRefused) {
			w.next = "" // the text has the next step
		}
	}
	return list[known:]
}

// checkProblems lists problems of custom checks that no condition reports.
func checkProblems(c api.CustomConditions, before []problem) []problem {
	var list []problem
	for _, f := range c.Faults {
		reported := false
		for _, check := range c.Checks {
			reported = reported || check.Fault != nil && *check.Fault == f && covered(before, api.Cause(check.Type))
		}
		if !reported {
			list = append(list, problem{what: "conditions", text: f.String(), next: f.Fix, severity: info})
		}
	}
	for _, check := range c.Checks {
		kind := string(check.Type)
		switch {
		case check.LocalOnly:
			list = append(list, problem{what: "conditions", text: kind + " is shown only here: on a Node of the kubelet, hostler writes only hostler.io/* conditions", severity: info})
		case !check.Temporary:
		case check.Answer == status.Problem:
			list = append(list, problem{what: kind, text: check.Message, next: status.StepOfProblem, severity: info})
		case check.Faulty: // already listed
		case check.Answer == status.Undecided, check.Answer == status.TimedOut, check.Answer == status.NotRun:
			list = append(list, problem{what: kind + " unknown", text: check.Message, next: "`hostler doctor`", severity: info})
		}
	}
	return list
}

// infos lists problems that affect neither pods nor the fleet.
func infos(out *output, s api.Status) []problem {
	var list []problem
	if r := s.ImageGC.LastRun; r != nil {
		for _, warning := range r.Warnings { // one for each filesystem that was still too full
			if freed(s.ImageGC, warning) {
				continue
			}
			reached, _, _ := strings.Cut(firstLine(warning), "; images kept: ") // the next step shows the rest
			list = append(list, problem{
				what: "images", text: "the last collection, " + out.ago(r.StartedAt) + ", did not free enough: " + reached,
				next: "`hostler gc plan` shows why images are kept, `hostler gc history -o wide` the largest folders", severity: info,
			})
		}
	}
	if s.Shortage != "" {
		list = append(list, problem{what: "reserved", text: s.Shortage, severity: failing})
	}
	if s.AddressMissing != "" {
		list = append(list, problem{what: "addresses", text: s.AddressMissing, next: status.StepAddressMissing(s.AddressMissing), severity: info})
	}
	if c := s.NodeName; c != nil {
		level := info
		if c.Status == doctor.Fail {
			level = unreported
		}
		list = append(list, problem{what: "node name", text: c.Message, next: c.Hint, severity: level})
	}
	if c := doctor.OutdatedAgent(s.Version, out.version); c.Status != "" {
		list = append(list, problem{what: "version", text: c.Message, next: c.Hint, severity: info})
	}
	if text := s.Configuration.Trouble(); text != "" {
		list = append(list, problem{what: "configuration", text: text, next: s.Configuration.Fix(), severity: info})
	}
	for _, n := range s.Shutdown.NotStarted {
		how, next := "not restarted yet", "; hostler keeps retrying"
		if n.Failed {
			how, next = "failed after its restart", " shows why; hostler does not restart it again"
		}
		text := "stopped for a shutdown that was cancelled, " + how + ": " + n.Reason
		list = append(list, problem{what: n.Unit, text: text, next: "`systemctl status " + n.Unit + "`" + next, severity: failing})
	}
	if text := s.State.Message; text != "" {
		next := "`df -h " + s.State.Path + "`, and `" + logOfAgent + "`"
		if s.State.Persisted { // only an old file was set aside
			next = "delete that file once you no longer need it"
		}
		list = append(list, problem{what: "state", text: text, next: next, severity: info})
	}
	if r := s.Reboot; r != nil && r.Problem != "" {
		list = append(list, problem{what: "requested reboot", text: r.Problem, next: doctor.RebootFix, severity: failing})
	}
	if unexpected(out, s) {
		r := s.Reboots.Last
		list = append(list, problem{what: "reboot", text: "unexpected, " + out.ago(s.Reboots.BootedAt) + ", " + r.By() + ": " + r.Error, next: "`journalctl -b -1 -e` shows the end of the previous boot's log", severity: info})
	}
	return list
}

// freed reports whether the filesystem of a warning has enough free space now.
func freed(g api.ImageGC, warning string) bool {
	return slices.ContainsFunc(g.Filesystems, func(fs gc.FilesystemStatus) bool {
		return strings.HasPrefix(warning, "image filesystem "+fs.Filesystem+" ") && fs.Message == "" &&
			fs.UsedPercent < g.HighThresholdPercent && fs.InodesUsedPercent < g.InodesHighThresholdPercent
	})
}

// unexpected reports whether this boot is recent and followed an unexpected reboot.
func unexpected(out *output, s api.Status) bool {
	r := s.Reboots.Last
	return r != nil && r.Verdict == reboots.Unexpected && out.now().Sub(s.Reboots.BootedAt) < fresh
}

// conditionProblems lists conditions with a problem, Ready first, because the others explain it.
func conditionProblems(s api.Status) []problem {
	var list []problem
	for _, c := range slices.SortedStableFunc(slices.Values(s.Node.Status.Conditions), readyFirst) {
		w := problem{what: string(c.Type), since: c.LastTransitionTime.Time, text: c.Message, next: s.NextSteps[c.Type], severity: pressed, causes: []api.Cause{api.Cause(c.Type)}}
		switch {
		case (status.Transition{New: c}).Good():
			continue
		case c.Type == corev1.NodeReady:
			w.what, w.severity = "", noPods
		case strings.HasPrefix(c.Message, status.NoPressureSince): // the pressure is over
			w.text, _, _ = strings.Cut(c.Message, "; now ")
			w.next = ""
		case hasFigure(c):
			w.measured = c.LastHeartbeatTime.Time
		case c.Type == status.ShutdownProtected:
			w.what, w.severity = "shutdown", unprotected
			switch ready := controlplane.ConditionOf(s.Node, corev1.NodeReady); {
			case c.Reason == status.ReasonStarting: // the guard's own status may be newer
				w.severity, w.causes = info, nil
			case c.Reason == status.ReasonSwitchedOff: // disabled by configuration
				w.severity = info
			case c.Reason == status.ReasonPodsOutOfReach && ready != nil && ready.Status == corev1.ConditionFalse:
				w.next = "" // Ready has the same next step
			}
		case c.Status == corev1.ConditionUnknown:
			w.what += " unknown"
			w.severity = unseen
		}
		list = append(list, w)
	}
	return list
}

// hasFigure reports whether the message of a condition has a figure of the last check. Other
// figures on the screen may be newer.
func hasFigure(c corev1.NodeCondition) bool {
	switch c.Type {
	case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
		return c.Status == corev1.ConditionTrue
	}
	return false
}

func readyFirst(a, b corev1.NodeCondition) int {
	rank := func(c corev1.NodeCondition) int {
		if c.Type == corev1.NodeReady {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}

// covered reports whether the list already has problems with all of these causes. A loop often
// reports the same fault as a condition or the control plane.
func covered(list []problem, causes ...api.Cause) bool {
	for _, c := range causes {
		if c == "" || !slices.ContainsFunc(list, func(w problem) bool { return slices.Contains(w.causes, c) }) {
			return false
		}
	}
	return len(causes) > 0
}

// causesOf returns the causes for failures of these runtimes.
func causesOf(runtimes []string) []api.Cause {
	var causes []api.Cause
	for _, name := range runtimes {
		causes = append(causes, api.Cause("runtime "+name))
	}
	return causes
}

// anyDown reports whether one of the runtimes is down. The condition Ready already names it. The
// error of each loop would repeat the same cause.
func anyDown(s api.Status, names []string) bool {
	return slices.ContainsFunc(s.Runtimes, func(r api.Runtime) bool {
		return !r.Ready && slices.Contains(names, r.Name)
	})
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
