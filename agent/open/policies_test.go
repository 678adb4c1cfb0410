package open

import (
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// planned returns the plan under a configuration: "phase:name(grace) ...".
func planned(t *testing.T, text string, pods ...runtime.Pod) string {
	t.Helper()
	cfg, err := config.Parse("hostler.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPolicies(cfg, "node-a", "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		pods[i].ID = pods[i].Name
		pods[i].Containers = []runtime.Container{{Name: "c", State: runtime.Running}}
	}
	var parts []string
	for _, phase := range plan.New(p.Phases, pods, p.Rules, 0).Phases {
		for _, pod := range phase.Pods {
			parts = append(parts, phase.Name+":"+pod.Name+"("+pod.Grace.Duration.String()+")")
		}
	}
	return strings.Join(parts, " ")
}

func TestTheConfigurationOfTheShutdownReachesThePlan(t *testing.T) {
	labelled := func(name, key, value string) runtime.Pod {
		return runtime.Pod{Name: name, Labels: map[string]string{key: value}}
	}
	for name, c := range map[string]struct {
		config string
		pods   []runtime.Pod
		want   string
	}{
		"two periods": {
			"shutdown: {gracePeriod: 25s, gracePeriodCriticalPods: 5s}",
			[]runtime.Pod{{Name: "web"}, labelled("dns", runtime.LabelCritical, "true")},
			"regular:web(20s) critical:dns(5s)",
		},
		"any number of priority groups": {
			"shutdown: {byPriority: [{priority: 1000, gracePeriod: 3s}, {priority: 0, gracePeriod: 7s}, {priority: -5, gracePeriod: 2s}, {priority: 2000000000, gracePeriod: 4s}]}",
			[]runtime.Pod{
				{Name: "plain"},
				labelled("low", runtime.LabelPriority, "-4"), labelled("lowest", runtime.LabelPriority, "-100"),
				labelled("mid", runtime.LabelPriority, "1999"), labelled("dns", runtime.LabelCritical, "true"),
			},
			"priority--5:low(2s) priority--5:lowest(2s) priority-0:plain(7s) priority-1000:mid(3s) priority-2000000000:dns(4s)",
		},
		"critical by namespace": {
			"shutdown: {critical: [{namespace: kube-*}]}",
			[]runtime.Pod{{Name: "a", Namespace: "kube-system"}, {Name: "b", Namespace: "shop"}},
			"regular:b(20s) critical:a(10s)",
		},
		"critical by name": {
			"shutdown: {critical: [{name: 'db-?'}]}",
			[]runtime.Pod{{Name: "db-0"}, {Name: "db-10"}},
			"regular:db-10(20s) critical:db-0(10s)",
		},
		"critical by label": {
			"shutdown: {critical: [{labels: {tier: storage}}]}",
			[]runtime.Pod{labelled("a", "tier", "storage"), labelled("b", "tier", "web")},
			"regular:b(20s) critical:a(10s)",
		},
		"critical by annotation": {
			"shutdown: {critical: [{annotations: {example.com/keep-up: '*'}}]}",
			[]runtime.Pod{{Name: "a", Annotations: map[string]string{"example.com/keep-up": "please"}}, {Name: "b"}},
			"regular:b(20s) critical:a(10s)",
		},
		"a pod's own grace": {
			"",
			[]runtime.Pod{labelled("brief", runtime.LabelGracePeriod, "3s"), labelled("long", runtime.LabelGracePeriod, "5m")},
			"regular:brief(3s) regular:long(20s)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := planned(t, c.config, c.pods...); got != c.want {
				t.Errorf("plan = %s, want %s", got, c.want)
			}
		})
	}
	if plan.DefaultGracePeriod != 30*time.Second {
		t.Errorf("the default period is %v, and the graces above are of 30s", plan.DefaultGracePeriod)
	}
}
