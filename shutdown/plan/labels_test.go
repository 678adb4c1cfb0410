package plan_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

type values = map[string]string

func TestPriority(t *testing.T) {
	rules, err := plan.NewRules([]plan.Rule{{Namespace: "kube-*"}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		pod   runtime.Pod
		want  int32
		notes int
	}{
		{"nothing said", runtime.Pod{}, 0, 0},
		{"a label", runtime.Pod{Labels: values{runtime.LabelPriority: "-7"}}, -7, 0},
		{"an annotation", runtime.Pod{Annotations: values{runtime.LabelPriority: "7"}}, 7, 0},
		{"a label before an annotation", runtime.Pod{Labels: values{runtime.LabelPriority: "1"}, Annotations: values{runtime.LabelPriority: "2"}}, 1, 0},
		{"priority before critical", runtime.Pod{Labels: values{runtime.LabelPriority: "1", runtime.LabelCritical: "true"}}, 1, 0},
		{"critical", runtime.Pod{Annotations: values{runtime.LabelCritical: "true"}}, plan.CriticalPriority, 0},
		{"a rule", runtime.Pod{Namespace: "kube-system"}, plan.CriticalPriority, 0},
		{"critical false overrules a rule", runtime.Pod{Namespace: "kube-system", Labels: values{runtime.LabelCritical: "false"}}, 0, 0},
		{"the annotation replaces a faulty label", runtime.Pod{Labels: values{runtime.LabelPriority: "high"}, Annotations: values{runtime.LabelPriority: "2"}}, 2, 1},
		{"too large a number", runtime.Pod{Labels: values{runtime.LabelPriority: "2147483648"}}, 0, 1},
		{"faulty priority, then critical", runtime.Pod{Labels: values{runtime.LabelPriority: "", runtime.LabelCritical: "true"}}, plan.CriticalPriority, 1},
		{"critical is neither true nor false", runtime.Pod{Labels: values{runtime.LabelCritical: "yes"}, Namespace: "kube-system"}, plan.CriticalPriority, 1},
		{"the highest of the containers speaks for a pod that says nothing", runtime.Pod{Containers: []runtime.Container{
			{Name: "a", Labels: values{runtime.LabelPriority: "3"}}, {Name: "b", Labels: values{runtime.LabelPriority: "9"}}, {Name: "c"},
		}}, 9, 0},
		{"the pod speaks before its containers", runtime.Pod{Labels: values{runtime.LabelPriority: "1"}, Containers: []runtime.Container{{Labels: values{runtime.LabelCritical: "true"}}}}, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, notes := plan.Priority(tt.pod, rules)
			if got != tt.want || len(notes) != tt.notes {
				t.Errorf("Priority() = %d, %v, want %d and %d notes", got, notes, tt.want, tt.notes)
			}
		})
	}
}

func TestGrace(t *testing.T) {
	const own, kube = runtime.LabelGracePeriod, runtime.LabelTerminationGracePeriod
	tests := []struct {
		name           string
		onContainer    values
		annotated      values // on the container
		onPod          values
		annotatedOnPod values
		want           time.Duration
		notes          int
	}{
		{name: "nothing said", want: 30 * time.Second},
		{name: "what a kubelet recorded", onContainer: values{kube: "45"}, want: 45 * time.Second},
		{name: "what a kubelet recorded as an annotation", annotated: values{kube: "45"}, want: 45 * time.Second},
		{name: "the label before what a kubelet recorded", onContainer: values{own: "90s", kube: "45"}, want: 90 * time.Second},
		{name: "the pod's label before what a kubelet recorded", onContainer: values{kube: "45"}, onPod: values{own: "2m"}, want: 2 * time.Minute},
		{name: "the container before its pod", onContainer: values{own: "1s"}, onPod: values{own: "2s"}, want: time.Second},
		{name: "a container's annotation before a pod's label", annotated: values{own: "3s"}, onPod: values{own: "2s"}, want: 3 * time.Second},
		{name: "a pod's annotation", annotatedOnPod: values{own: "4s"}, want: 4 * time.Second},
		{name: "none at all", onContainer: values{own: "0s"}, want: 0},
		{name: "a number without a unit", onContainer: values{own: "90"}, want: 30 * time.Second, notes: 1},
		{name: "a negative duration", onContainer: values{own: "-90s"}, onPod: values{own: "5s"}, want: 5 * time.Second, notes: 1},
		{name: "a kubelet's nonsense", onContainer: values{kube: "4.5"}, want: 30 * time.Second, notes: 1},
		{name: "a kubelet's negative number", onContainer: values{kube: "-1"}, want: 30 * time.Second, notes: 1},
		{name: "more seconds than can be counted", onContainer: values{kube: "9223372036854775807"}, want: 30 * time.Second, notes: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := runtime.Pod{Name: "web", Labels: tt.onPod, Annotations: tt.annotatedOnPod}
			got, _, notes := plan.Grace(pod, runtime.Container{Name: "nginx", Labels: tt.onContainer, Annotations: tt.annotated})
			if got != tt.want || len(notes) != tt.notes {
				t.Errorf("Grace() = %v, %v, want %v and %d notes", got, notes, tt.want, tt.notes)
			}
			for _, n := range notes {
				if n.Pod != "web" || n.Container != "nginx" || n.Key == "" || n.Problem == "" {
					t.Errorf("Grace() notes %+v, want pod, container, key and problem", n)
				}
			}
		})
	}
}

func TestRules(t *testing.T) {
	pod := runtime.Pod{
		Namespace: "prod", Name: "db-0",
		Labels:      values{"app": "postgres", "tier": ""},
		Annotations: values{"team": "data/storage"},
	}
	tests := []struct {
		name string
		rule plan.Rule
		want bool
	}{
		{"namespace", plan.Rule{Namespace: "prod"}, true},
		{"another namespace", plan.Rule{Namespace: "pro"}, false},
		{"name by pattern", plan.Rule{Name: "db-?"}, true},
		{"all given must match", plan.Rule{Namespace: "prod", Name: "web-*"}, false},
		{"label", plan.Rule{Labels: values{"app": "post*"}}, true},
		{"any value of a label", plan.Rule{Labels: values{"tier": "*"}}, true},
		{"a label that the pod lacks", plan.Rule{Labels: values{"zone": "*"}}, false},
		{"annotation with a slash", plan.Rule{Annotations: values{"team": "data/*"}}, true},
		{"regular expressions are plain text", plan.Rule{Name: "db.0"}, false},
		{"half of a name", plan.Rule{Name: "db"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := plan.NewRules([]plan.Rule{{Namespace: "nowhere"}, tt.rule})
			if got := rules.Critical(pod); err != nil || got != tt.want {
				t.Errorf("Critical() = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
	_, err := plan.NewRules([]plan.Rule{{Name: "a"}, {}})
	if fault, named := errors.AsType[*field.Error](err); !named || fault.Field != "shutdown.critical[1]" {
		t.Errorf("NewRules() with an empty rule: %v, want an error of critical[1]", err)
	}
	if (plan.Rules{}).Critical(pod) {
		t.Errorf("Critical() without rules = true, want false")
	}
}

func FuzzLabels(f *testing.F) {
	for _, seed := range []string{"90s", "-1", "2000000000", "1e400h", "", "true", "9223372036854775807", "\xa2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pod := runtime.Pod{Labels: values{runtime.LabelPriority: text, runtime.LabelCritical: text}}
		if priority, notes := plan.Priority(pod, plan.Rules{}); len(notes) == 2 && priority != 0 {
			t.Errorf("Priority(%q) = %d although both labels are faulty, want 0", text, priority)
		}
		for _, key := range []string{runtime.LabelGracePeriod, runtime.LabelTerminationGracePeriod} {
			grace, _, notes := plan.Grace(pod, runtime.Container{Labels: values{key: text}})
			if grace < 0 || len(notes) == 1 && grace != plan.DefaultContainerGrace {
				t.Errorf("Grace(%s=%q) = %v, %v, want the default with a note, or what was said", key, text, grace, notes)
			}
		}
		rules, err := plan.NewRules([]plan.Rule{{Name: "x" + text}})
		if err != nil {
			if utf8.ValidString(text) && len(text) < 1000 {
				t.Errorf("NewRules(%q): %v, want a rule", text, err)
			}
			return
		}
		if !strings.ContainsAny(text, "*?") && !rules.Critical(runtime.Pod{Name: "x" + text}) {
			t.Errorf("Critical(%q) = false by a rule of the same text, want true", text)
		}
	})
}
