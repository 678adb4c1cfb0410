package cli

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/status"
)

// screenWidth is what every terminal has.
const screenWidth = 80

// verdict is the first line: the node, and whether it is ready.
func verdict(out *output, s api.Status) string {
	if s.Node == nil {
		return out.yellow("starting") + ": the host has not been looked at yet"
	}
	ready := condition(s.Node, corev1.NodeReady)
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
		word += out.yellow(",SchedulingDisabled") // as kubectl says it
	}
	return s.Node.Name + " is " + word + ", for " + age(out.now().Sub(ready.LastTransitionTime.Time)) + " now"
}

// worry is one thing that is wrong.
type worry struct {
	what   string // empty where it explains the verdict
	text   string
	milder bool // nothing that pods or the fleet feel
	custom bool // a check of the administrator's own says so, in whatever words
}

// print writes the worry, indented, on as many lines as it takes.
func (w worry) print(t *table, out *output) {
	what := w.what
	if what != "" {
		what += ": "
	}
	lines := []string{what + w.text}
	if !out.wide() {
		lines = wrap(what+w.text, screenWidth-4)
	}
	for i, line := range lines {
		if rest, found := strings.CutPrefix(line, w.what); i == 0 && found && w.milder {
			line = out.yellow(w.what) + rest
		} else if i == 0 && found && w.what != "" {
			line = out.red(w.what) + rest
		}
		indent := "  "
		if i > 0 {
			indent += "  "
		}
		t.line("%s", indent+line)
	}
}

// worries lists what is wrong, the worst first, each once.
func worries(s api.Status) []worry {
	var list []worry
	if s.Node != nil {
		list = conditionWorries(s.Node.Status.Conditions)
	}
	if s.ControlPlane.Overdue != "" { // the fleet feels it first
		list = append([]worry{{what: "heartbeat", text: s.ControlPlane.Overdue}}, list...)
	}
	if s.ControlPlane.Resting != "" {
		list = append(list, worry{what: "control plane", text: s.ControlPlane.Resting, milder: true})
	}
	for _, d := range s.Drift {
		list = append(list, worry{what: "drift", text: d.Message + ": `" + d.Mend + "` mends it", milder: true})
	}
	if s.ControlPlane.Credentials != "" && !said(list, s.ControlPlane.Credentials) {
		list = append(list, worry{what: "credentials", text: s.ControlPlane.Credentials})
	}
	if s.ControlPlane.LastError != "" && !said(list, s.ControlPlane.LastError) {
		list = append(list, worry{what: "control plane", text: s.ControlPlane.LastError})
	}
	for _, l := range s.Loops {
		if text := firstLine(l.LastError); !l.Healthy && !said(list, text) && !blamesARuntime(s, text) {
			list = append(list, worry{what: "loop " + l.Name, text: text})
		}
	}
	if text := firstLine(s.ImageGC.Message); text != "" && !said(list, text) && !blamesARuntime(s, text) {
		list = append(list, worry{what: "images and containers", text: text})
	}
	list = append(list, checkWorries(s.CustomConditions, list)...)
	if text := s.Configuration.Trouble(); text != "" {
		list = append(list, worry{what: "configuration", text: text + "; mend: " + s.Configuration.Mend(), milder: true})
	}
	if s.State.Message != "" {
		list = append(list, worry{what: "state", text: s.State.Message, milder: true})
	}
	return list
}

// checkWorries tells of the administrator's own checks what no condition tells.
func checkWorries(c api.CustomConditions, before []worry) []worry {
	var list []worry
	for _, f := range c.Faults {
		if text := f.String() + "; " + f.Mend; !said(before, text) {
			list = append(list, worry{what: "conditions", text: text, milder: true})
		}
	}
	for _, check := range c.Checks {
		switch {
		case check.LocalOnly:
			list = append(list, worry{what: "conditions", text: string(check.Type) + " is shown here only: on a kubelet's Node hostler writes none but hostler.io/*", milder: true})
		case !check.Temporary:
		case check.Answer == status.Problem:
			list = append(list, worry{what: string(check.Type), text: check.Message, milder: true, custom: true})
		case check.Answer == status.NotRun && said(list, check.Message): // as a fault
		case check.Answer == status.Undecided, check.Answer == status.TimedOut, check.Answer == status.NotRun:
			list = append(list, worry{what: string(check.Type) + " unknown", text: check.Message, milder: true, custom: true})
		}
	}
	return list
}

// conditionWorries puts Ready first, for all others are about what it says.
func conditionWorries(conditions []corev1.NodeCondition) []worry {
	var list []worry
	for _, c := range slices.SortedStableFunc(slices.Values(conditions), readyFirst) {
		w := worry{what: string(c.Type), text: c.Message, custom: status.IsCustom(c.Type)}
		switch {
		case (status.Transition{New: c}).Good():
			continue
		case c.Type == corev1.NodeReady:
			w.what = ""
		case c.Type == status.ShutdownProtected:
			w.what = "shutdown"
		case c.Status == corev1.ConditionUnknown:
			w.what += " unknown"
		}
		list = append(list, w)
	}
	return list
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

// said tells whether an error stands in the list already: a condition or the
// control plane and the loop behind it often tell the same, one in more words.
func said(list []worry, text string) bool {
	return slices.ContainsFunc(list, func(w worry) bool {
		return strings.Contains(w.text, text) || w.text != "" && !w.custom && strings.Contains(text, w.text)
	})
}

// blamesARuntime tells whether an error comes from a runtime that Ready names as
// down already: it would fill the screen with the same cause once for each loop.
func blamesARuntime(s api.Status, text string) bool {
	return slices.ContainsFunc(s.Runtimes, func(r api.Runtime) bool {
		return !r.Ready && strings.Contains(text, "runtime "+r.Name+": ")
	})
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// wrap breaks text into lines of at most width columns, at blanks where it can.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
