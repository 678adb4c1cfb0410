package plan_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

func TestALabelThatOnlyLooksLikeHostlersIsNotedWithTheNearest(t *testing.T) {
	for key, want := range map[string]string{
		"shutdown.hostler.io/grace":             "did you mean hostler.io/grace-period?",
		"hostler.io/graceperiod":                "did you mean hostler.io/grace-period?",
		"hostler.io/termination-grace-period":   "did you mean hostler.io/grace-period?",
		"hostler.io/Critical":                   "did you mean hostler.io/critical?",
		"hostler.io/prio":                       "did you mean hostler.io/priority?",
		"io.hostler.keep":                       "did you mean hostler.io/keep?",
		"hostler.keep":                          "did you mean hostler.io/keep?",
		"gc.hostler.io/protected":               "it knows hostler.io/critical, hostler.io/grace-period, hostler.io/keep, hostler.io/priority",
		"hostler.io/reboot-group":               "is read on the Node, not on pods",
		"hostler.io/lease-duration":             "is read on the Node, not on pods",
		"hostler.io/slots":                      "is written by hostler, not read on pods",
		"hostler.io/keep":                       "",
		"hostler.io/grace-period":               "",
		"nothostler.io/grace":                   "",
		sanitize.DroppedKey:                     "", // of labels that were cut
		"example.com/hostler.io":                "",
		runtime.LabelTerminationGracePeriod:     "",
		"io.kubernetes.container.restartCount":  "",
		"hostlers.example.com/grace-of-another": "",
	} {
		labels := values{key: "5s"}
		pods := []runtime.Pod{
			{Name: "labels", Labels: labels},
			{Name: "annotations", Annotations: labels},
			{Name: "both", Labels: labels, Containers: []runtime.Container{{Name: "both", Labels: labels}}}, // as Docker reports it
			{Name: "exited", Containers: []runtime.Container{{Name: "c", State: runtime.Exited, Annotations: labels}}},
		}
		notes := plan.UnknownLabels(pods)
		if want == "" {
			if len(notes) > 0 {
				t.Errorf("UnknownLabels() of %s = %+v, want none", key, notes)
			}
			continue
		}
		if len(notes) != len(pods) {
			t.Errorf("UnknownLabels() of %s = %+v, want one of each pod", key, notes)
		}
		for i, n := range notes {
			if n.Pod != pods[i].Name || n.Key != key || n.Value != "5s" || !strings.HasSuffix(n.Problem, want) {
				t.Errorf("UnknownLabels() of %s = %+v, want it to end with %q", key, n, want)
			}
		}
	}
}

func TestNotesOfOnePodAreBounded(t *testing.T) {
	many := values{}
	var containers []runtime.Container
	for i := range 10_000 {
		many["hostler.io/"+strconv.Itoa(i)] = "x"
		containers = append(containers, runtime.Container{Name: strconv.Itoa(i), State: runtime.Running, Labels: values{runtime.LabelPriority: "high"}})
	}
	pods := []runtime.Pod{
		{Name: "first", Labels: many, Containers: containers},
		{Name: "second", Labels: values{"hostler.io/critcal": "true"}, Containers: []runtime.Container{{Name: "c", State: runtime.Running}}},
	}
	for what, notes := range map[string][]plan.Note{
		"UnknownLabels()": plan.UnknownLabels(pods),
		"Ignored()":       plan.Ignored([]plan.PhaseSpec{{Grace: time.Minute}}, pods, plan.Rules{}),
	} {
		if n := len(notes); n > 21 || notes[n-1].Pod != "second" {
			t.Errorf("%s has %d notes, the last of pod %q, want at most 21, and the last of pod second", what, n, notes[n-1].Pod)
		}
	}
	if n := len(plan.OwnLabels(pods[0])); n > 20 {
		t.Errorf("OwnLabels() has %d labels, want at most 20", n)
	}
}

func TestNoLabelOfHostlerIsCalledUnknown(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/labels.md")
	if err != nil {
		t.Fatal(err)
	}
	_, onNode, found := strings.Cut(string(page), "\n## On the Node and its Lease\n")
	onNode, _, ends := strings.Cut(onNode, "\n## ")
	keys := regexp.MustCompile("`(hostler\\.io/[a-z-]+)`").FindAllStringSubmatch(onNode, -1)
	if !found || !ends || len(keys) == 0 {
		t.Fatal("docs/reference/labels.md has no keys of the Node and its Lease")
	}
	for _, key := range keys {
		notes := plan.UnknownLabels([]runtime.Pod{{Name: "web", Labels: values{key[1]: "x"}}})
		if len(notes) != 1 || !strings.HasSuffix(notes[0].Problem, " on pods") {
			t.Errorf("UnknownLabels() of %s = %+v, want where it belongs", key[1], notes)
		}
	}
}

func TestOwnLabelsAreThoseOfThePodAndItsContainers(t *testing.T) {
	got := plan.OwnLabels(runtime.Pod{
		Labels:      map[string]string{"app": "shop", "hostler.io/keep": "true"},
		Annotations: map[string]string{"hostler.io/critcal": "true"},
		Containers: []runtime.Container{
			{Name: "web", Labels: map[string]string{"hostler.io/grace-period": "90s", "hostler.io/keep": "true"}},
			{Name: "log", Annotations: map[string]string{"hostler.io/grace-period": "5s"}},
		},
	})
	want := []string{"hostler.io/critcal=true", "hostler.io/grace-period=5s", "hostler.io/grace-period=90s", "hostler.io/keep=true"}
	if !slices.Equal(got, want) {
		t.Errorf("OwnLabels() = %q, want %q", got, want)
	}
}
