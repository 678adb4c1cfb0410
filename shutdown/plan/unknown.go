package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
)

// domain is the domain of hostler's labels and annotations.
const domain = "hostler.io/"

// known returns the labels and annotations of pods and containers that hostler reads.
func known() []string {
	return []string{runtime.LabelCritical, runtime.LabelGracePeriod, runtime.LabelKeep, runtime.LabelPriority}
}

// elsewhere returns the other labels and annotations of hostler, with the object that they belong
// to. docs/reference/labels.md lists them.
func elsewhere() map[string]string {
	const read, written = "is read on the Node, not on pods", "is written by hostler, not read on pods"
	return map[string]string{
		domain + "lease-duration": read, domain + "reboot-group": read,
		domain + "cordoned": written, domain + "instance": written, domain + "machine-id": written, domain + "no-execute-added": written, domain + "owned": written, domain + "rebooting": written,
		domain + "reboot": written, domain + "reboot-slot": written, domain + "replaced": written, domain + "same-machine-id": written,
		domain + "slots": written, domain + "system-uuid": written,
	}
}

// Ignored returns a note for each label and annotation that hostler ignores: those with an invalid
// value, and those of UnknownLabels.
func Ignored(phases []PhaseSpec, pods []runtime.Pod, rules Rules) []Note {
	return withoutRepeats(append(New(phases, pods, rules, 0).Notes, UnknownLabels(pods)...))
}

// OwnLabels returns the first labels and annotations in hostler's domain, of a pod and its
// containers, as KEY=VALUE.
func OwnLabels(p runtime.Pod) (list []string) {
	for _, s := range allSources(p) {
		for key, value := range s.values {
			if strings.HasPrefix(key, domain) {
				list = append(list, key+"="+value)
			}
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list[:min(len(list), mostNotes)]
}

// UnknownLabels returns a note for each label and annotation that looks like one of hostler's but
// is not, with the most similar valid one. There are at most mostNotes of a pod.
func UnknownLabels(pods []runtime.Pod) []Note {
	var notes []Note
	for _, p := range pods {
		for _, s := range allSources(p) {
			for _, key := range slices.Sorted(maps.Keys(s.values)) {
				if problem := unknownKey(key); problem != "" {
					notes = append(notes, Note{
						Runtime: p.Runtime, Namespace: p.Namespace, Pod: p.Name, Container: s.container,
						Key: key, Value: s.values[key], Problem: problem,
					})
				}
			}
		}
	}
	return withoutRepeats(notes)
}

// unknownKey returns what is wrong with a key that looks like one of hostler's. It is empty if the
// key is valid, or belongs to another program.
func unknownKey(key string) string {
	name, ours := nameOf(key)
	if !ours || key == sanitize.DroppedKey || slices.Contains(known(), key) {
		return ""
	}
	if problem := elsewhere()[key]; problem != "" {
		return problem
	}
	if near := nearest(name); near != "" {
		return "is not a label of hostler; did you mean " + near + "?"
	}
	return "is not a label of hostler; it knows " + strings.Join(known(), ", ")
}

// nameOf returns the key without hostler's domain. It also recognises likely errors in the domain:
// a subdomain, another order, or a missing top-level domain.
func nameOf(key string) (name string, ours bool) {
	at, rest, qualified := strings.Cut(key, "/")
	if qualified && (at+"/" == domain || strings.HasSuffix(at+"/", "."+domain)) {
		return rest, true
	}
	for _, prefix := range []string{"hostler.io.", "io.hostler.", "io.hostler/", "hostler.", "hostler/"} {
		if rest, found := strings.CutPrefix(key, prefix); found {
			return rest, true
		}
	}
	return "", false
}

// nearest returns the known key that is most similar to name: one contains the other, or they
// differ in few letters. It is empty if there is none.
func nearest(name string) string {
	best, least := "", 3
	for _, key := range known() {
		other := strings.TrimPrefix(key, domain)
		distance := levenshtein.ComputeDistance(strings.ToLower(name), other)
		if len(name) >= 4 && (strings.Contains(other, name) || strings.Contains(name, other)) {
			distance = 0
		}
		if distance < least {
			best, least = key, distance
		}
	}
	return best
}
