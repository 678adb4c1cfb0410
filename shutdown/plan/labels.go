package plan

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
)

// DefaultContainerGrace is the grace period of a container that does not request one, as in
// Kubernetes.
const DefaultContainerGrace = 30 * time.Second

// unknownGrace is the grace period if the runtime has not reported the requested one. It is longer
// than any phase, so that the container gets the whole time of its phase.
const unknownGrace = 24 * time.Hour

// Rule marks pods as critical that do not have the label. A pod matches if all fields that are set
// match. Patterns match the whole value: "*" matches any text, "?" one character.
type Rule struct {
	Namespace   string
	Name        string
	Labels      map[string]string // key to pattern of the value
	Annotations map[string]string // key to pattern of the value
}

// Rules is a validated list of rules. The zero value matches nothing.
type Rules struct{ rules []compiledRule }

type compiledRule struct {
	namespace, name     *regexp.Regexp // nil matches all
	labels, annotations map[string]*regexp.Regexp
}

// NewRules validates and compiles rules. Errors are *field.Error. An empty rule is an error,
// because it would make every pod critical.
func NewRules(rules []Rule) (Rules, error) {
	var compiled Rules
	for i, r := range rules {
		if r.Namespace == "" && r.Name == "" && len(r.Labels) == 0 && len(r.Annotations) == 0 {
			return Rules{}, fault(fmt.Sprintf("critical[%d]", i), "an empty rule would match every pod: give namespace, name, labels or annotations")
		}
		c, err := r.compile()
		if err != nil {
			return Rules{}, fault(fmt.Sprintf("critical[%d]", i), "%w", err)
		}
		compiled.rules = append(compiled.rules, c)
	}
	return compiled, nil
}

func (r Rule) compile() (c compiledRule, err error) {
	pattern := func(glob string) *regexp.Regexp {
		quoted := regexp.QuoteMeta(glob)
		quoted = strings.ReplaceAll(strings.ReplaceAll(quoted, `\*`, ".*"), `\?`, ".")
		re, fault := regexp.Compile("(?s)^(?:" + quoted + ")$")
		if fault != nil { // the text is not UTF-8, or too long
			err = fmt.Errorf("%q is not a valid pattern: %v", glob, fault)
		}
		return re
	}
	patterns := func(globs map[string]string) map[string]*regexp.Regexp {
		compiled := make(map[string]*regexp.Regexp, len(globs))
		for key, glob := range globs {
			compiled[key] = pattern(glob)
		}
		return compiled
	}
	c.labels, c.annotations = patterns(r.Labels), patterns(r.Annotations)
	if r.Namespace != "" {
		c.namespace = pattern(r.Namespace)
	}
	if r.Name != "" {
		c.name = pattern(r.Name)
	}
	return c, err
}

// Critical reports whether a rule matches the pod.
func (r Rules) Critical(p runtime.Pod) bool {
	for _, rule := range r.rules {
		if rule.matches(p) {
			return true
		}
	}
	return false
}

func (c compiledRule) matches(p runtime.Pod) bool {
	return (c.namespace == nil || c.namespace.MatchString(p.Namespace)) &&
		(c.name == nil || c.name.MatchString(p.Name)) &&
		allMatch(c.labels, p.Labels) && allMatch(c.annotations, p.Annotations)
}

func allMatch(wanted map[string]*regexp.Regexp, have map[string]string) bool {
	for key, re := range wanted {
		value, ok := have[key]
		if !ok || !re.MatchString(value) {
			return false
		}
	}
	return true
}

// Note is a label or annotation that hostler ignores because it is invalid or unknown.
type Note struct {
	Runtime   string `json:"runtime"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Problem   string `json:"problem"`
	// Effect is what applies instead, such as "the grace period is 30s".
	Effect string `json:"effect,omitempty"`
}

// mostShown is the maximum length of a value in String, in bytes.
const mostShown = 60

// String names the object, the label and the fault.
func (n Note) String() string {
	name := strings.TrimPrefix(n.Namespace+"/"+n.Pod, "/")
	if n.Container != "" && n.Container != n.Pod {
		name += ", container " + n.Container
	}
	value := n.Value
	if len(value) > mostShown {
		value = value[:mostShown] + "..."
	}
	return fmt.Sprintf("%s: ignored %s=%q: it %s", name, n.Key, value, n.Problem)
}

// mostNotes bounds the notes of a pod in a list, and its labels in OwnLabels.
const mostNotes = 20

// withoutRepeats removes notes of a container that repeat one of its pod, or vice versa. Docker and
// Podman report the labels of a container without a pod for both. It also removes the notes of a pod
// beyond mostNotes.
func withoutRepeats(notes []Note) []Note {
	var kept []Note
	containers := map[Note]map[string]bool{} // of each note that is kept
	ofPod := map[Note]int{}                  // the number of notes that are kept
	for _, n := range notes {
		same, pod := n, Note{Runtime: n.Runtime, Namespace: n.Namespace, Pod: n.Pod}
		same.Container = ""
		known := containers[same]
		if known[""] || known[n.Container] || n.Container == "" && len(known) > 0 || ofPod[pod] == mostNotes {
			continue
		}
		if known == nil {
			known = map[string]bool{}
			containers[same] = known
		}
		known[n.Container] = true
		ofPod[pod]++
		kept = append(kept, n)
	}
	return kept
}

// source is one set of labels or annotations, of a pod or of a container.
type source struct {
	container string // empty for the pod
	values    map[string]string
}

func podSources(p runtime.Pod) []source {
	return []source{{values: p.Labels}, {values: p.Annotations}}
}

func containerSources(c runtime.Container) []source {
	return []source{{c.Name, c.Labels}, {c.Name, c.Annotations}}
}

// allSources returns the sources of a pod and of its containers.
func allSources(p runtime.Pod) []source {
	sources := podSources(p)
	for _, c := range p.Containers {
		sources = append(sources, containerSources(c)...)
	}
	return sources
}

// lookup returns the first value of key that parse accepts, with a note for each value that it
// rejected before.
func lookup[T any](p runtime.Pod, sources []source, key string, parse func(string) (T, error)) (value T, ok bool, notes []Note) {
	for _, s := range sources {
		text, found := s.values[key]
		if !found {
			continue
		}
		v, err := parse(text)
		if err == nil {
			return v, true, notes
		}
		notes = append(notes, Note{
			Runtime: p.Runtime, Namespace: p.Namespace, Pod: p.Name, Container: s.container,
			Key: key, Value: text, Problem: err.Error(),
		})
	}
	return value, false, notes
}

// Priority returns the pod's priority: the label or annotation hostler.io/priority. Without it, the
// priority is 2000000000 if hostler.io/critical is "true", and 0 if it is "false". Without either,
// it is 2000000000 if a rule matches, otherwise 0. Labels of the pod have precedence over those of
// its containers. Of its containers, the highest priority counts.
func Priority(p runtime.Pod, rules Rules) (int32, []Note) {
	priority, ok, notes := labelled(p, podSources(p))
	if !ok {
		for _, c := range p.Containers {
			other, has, more := labelled(p, containerSources(c))
			notes = append(notes, more...)
			if has && (!ok || other > priority) {
				priority, ok = other, true
			}
		}
	}
	switch {
	case ok:
		return priority, notes
	case rules.Critical(p):
		return CriticalPriority, notes
	}
	return 0, notes
}

// labelled returns the priority in one set of labels and annotations.
func labelled(p runtime.Pod, sources []source) (int32, bool, []Note) {
	priority, ok, notes := lookup(p, sources, runtime.LabelPriority, parsePriority)
	if ok {
		return priority, true, notes
	}
	critical, ok, more := lookup(p, sources, runtime.LabelCritical, parseCritical)
	if ok && critical {
		return CriticalPriority, true, append(notes, more...)
	}
	return 0, ok, append(notes, more...)
}

// Grace returns the grace period of the container. The first of these counts:
// hostler.io/grace-period on the container or its pod (labels before annotations); the value that
// kubelet recorded; the container's own stop timeout, as in `docker run --stop-timeout`. If the
// runtime has not reported that, Grace returns a value longer than any phase. Otherwise it is
// DefaultContainerGrace. requested reports that it is not a default.
func Grace(p runtime.Pod, c runtime.Container) (grace time.Duration, requested bool, notes []Note) {
	sources := append(containerSources(c), podSources(p)...)
	grace, requested, notes = lookup(p, sources, runtime.LabelGracePeriod, parseGrace)
	if requested {
		return grace, true, notes
	}
	grace, requested, more := lookup(p, sources, runtime.LabelTerminationGracePeriod, parseSeconds)
	notes = append(notes, more...)
	switch {
	case requested:
		return grace, true, notes
	case c.StopTimeout != nil:
		return *c.StopTimeout, true, notes
	case c.Incomplete:
		return unknownGrace, false, notes
	}
	return DefaultContainerGrace, false, notes
}

func parsePriority(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("is not a whole number from %d to %d", math.MinInt32, math.MaxInt32)
	}
	return int32(n), nil
}

func parseCritical(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf(`is neither "true" nor "false"`)
}

func parseGrace(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf(`is not a duration such as "90s"`)
	case d < 0:
		return 0, fmt.Errorf("is negative")
	}
	return d, nil
}

func parseSeconds(text string) (time.Duration, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("is not a whole number of seconds")
	case n < 0:
		return 0, fmt.Errorf("is negative")
	case n > math.MaxInt64/int64(time.Second):
		return 0, fmt.Errorf("is too long")
	}
	return time.Duration(n) * time.Second, nil
}
