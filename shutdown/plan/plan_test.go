package plan_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

func pod(name, priority string, containers ...runtime.Container) runtime.Pod {
	p := runtime.Pod{Runtime: "containerd", ID: "id-" + name, Namespace: "default", Name: name, Containers: containers}
	if priority != "" {
		p.Labels = values{runtime.LabelPriority: priority}
	}
	return p
}

func running(name, grace string) runtime.Container {
	c := runtime.Container{Runtime: "containerd", ID: "id-" + name, Name: name, State: runtime.Running}
	if grace != "" {
		c.Labels = values{runtime.LabelGracePeriod: grace}
	}
	return c
}

func needing(c runtime.Container, others ...string) runtime.Container {
	c.StopsBefore = others
	return c
}

func TestNewSortsPodsIntoPhases(t *testing.T) {
	phases := make([]plan.PhaseSpec, 0, 5)
	for i := range 5 {
		phases = append(phases, plan.PhaseSpec{Name: fmt.Sprint(i), Priority: int32(i * 100), Grace: 10 * time.Second})
	}
	var pods []runtime.Pod
	for name, priority := range map[string]string{"below": "-1", "none": "", "99": "99", "100": "100", "350": "350", "above": "2000000000"} {
		pods = append(pods, pod(name, priority, running("c", "")))
	}
	pods = append(pods, pod("dead", "", runtime.Container{State: runtime.Exited}), pod("empty", ""), pod("created", "", runtime.Container{State: runtime.Created}))
	got := map[string][]string{}
	for _, phase := range plan.New(phases, pods, plan.Rules{}, 0).Phases {
		for _, p := range phase.Pods {
			got[phase.Name] = append(got[phase.Name], p.Name)
		}
	}
	want := map[string][]string{"0": {"99", "below", "none"}, "1": {"100"}, "3": {"350"}, "4": {"above"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("New() = %v, want %v", got, want)
	}
}

// Time that a phase does not need goes to the next phase. A phase without pods takes no time.
func TestTheBoundIsWhatThePodsOfAPlanTake(t *testing.T) {
	phases := []plan.PhaseSpec{{Name: "regular", Grace: 20 * time.Second}, {Name: "critical", Priority: plan.CriticalPriority, Grace: 10 * time.Second}}
	const critical = "2000000000"
	for name, c := range map[string]struct {
		pods []runtime.Pod
		want time.Duration
	}{
		"nothing to stop":                          {nil, 0},
		"a pod that ended":                         {[]runtime.Pod{pod("a", "", runtime.Container{State: runtime.Exited})}, 0},
		"the first phase alone":                    {[]runtime.Pod{pod("a", "", running("c", "60s"))}, 20 * time.Second},
		"less than the phase has":                  {[]runtime.Pod{pod("a", "", running("c", "3s"), running("d", "5s"))}, 5 * time.Second},
		"the longest duration in a label":          {[]runtime.Pod{pod("a", "", running("c", "2s")), pod("b", critical, running("c", "2562047h47m16s"))}, 30 * time.Second},
		"that of a container that needs another":   {[]runtime.Pod{pod("a", "", needing(running("c", "2562047h47m16s"), "id-d"), running("d", "1s"))}, 20 * time.Second},
		"both phases":                              {[]runtime.Pod{pod("a", "", running("c", "60s")), pod("b", critical, running("c", "60s"))}, 30 * time.Second},
		"the second phase with the first one's":    {[]runtime.Pod{pod("b", critical, running("c", "60s"))}, 30 * time.Second},
		"the second phase needs less than it has":  {[]runtime.Pod{pod("b", critical, running("c", "12s"))}, 12 * time.Second},
		"what the first leaves is for the second":  {[]runtime.Pod{pod("a", "", running("c", "2s")), pod("b", critical, running("c", "15s"))}, 17 * time.Second},
		"a first phase that takes all of its time": {[]runtime.Pod{pod("a", "", running("c", "30s")), pod("b", critical, running("c", "2s"))}, 22 * time.Second},
	} {
		if got := plan.New(phases, c.pods, plan.Rules{}, 0).Bound(); got != c.want {
			t.Errorf("%s: Bound() = %v, want %v", name, got, c.want)
		}
	}
}

func TestNewGivesTheSmallerGrace(t *testing.T) {
	got := plan.New(plan.Defaults(), []runtime.Pod{
		pod("web", "", running("short", "5s"), running("long", "5m"), runtime.Container{Name: "dead", State: runtime.Exited}),
		pod("odd", "", running("faulty", "soon")),
	}, plan.Rules{}, 0)
	web := got.Phases[0].Pods[1]
	if web.Grace.Duration != 20*time.Second || len(web.Containers) != 2 ||
		web.Containers[0].Grace.Duration != 5*time.Second || web.Containers[1].Grace.Duration != 20*time.Second {
		t.Errorf("New() = %+v, want graces 5s and 20s, and the pod's the longest", web)
	}
	if len(got.Notes) != 1 || got.Notes[0].Container != "faulty" || got.Notes[0].Value != "soon" {
		t.Errorf("New() notes %+v, want the faulty label", got.Notes)
	}
}

// The plan has the time that a drain gives, and that the record shows.
func TestPodsHaveTheTimeOfPhasesWithoutPods(t *testing.T) {
	phases := []plan.PhaseSpec{{Name: "low", Priority: -1, Grace: 5 * time.Second}, {Name: "regular", Grace: 20 * time.Second}, {Name: "critical", Priority: plan.CriticalPriority, Grace: 10 * time.Second}}
	for name, c := range map[string]struct {
		pods   []runtime.Pod
		unused []time.Duration
		grace  time.Duration // of the critical pod
		limit  string
	}{
		"only critical pods": {nil, []time.Duration{0, 0, 25 * time.Second}, 35 * time.Second, "phase critical"},
		"all but the first":  {[]runtime.Pod{pod("web", "", running("c", "5s"))}, []time.Duration{0, 5 * time.Second, 0}, 10 * time.Second, "phase critical"},
		"all":                {[]runtime.Pod{pod("web", "", running("c", "5s")), pod("batch", "-1", running("c", "5s"))}, []time.Duration{0, 0, 0}, 10 * time.Second, "phase critical"},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan.New(phases, append(c.pods, pod("dns", "2000000000", running("c", "60s"))), plan.Rules{}, 0)
			for i, phase := range got.Phases {
				if phase.Unused.Duration != c.unused[i] || phase.Grace.Duration != phases[i].Grace {
					t.Errorf("phase %s = %v and %v of others, want %v and %v", phase.Name, phase.Grace, phase.Unused, phases[i].Grace, c.unused[i])
				}
			}
			if dns := got.Phases[2].Pods[0]; dns.Grace.Duration != c.grace || dns.Containers[0].Limit != c.limit {
				t.Errorf("New() = %+v, want the critical pod to have %v, limited by %s", dns, c.grace, c.limit)
			}
		})
	}
}

// Docker and Podman report the labels of a container without a pod for the pod, too.
func TestALabelThatIsIgnoredIsNotedOnceWithWhatAppliesInstead(t *testing.T) {
	labels := map[string]string{runtime.LabelGracePeriod: "soon", runtime.LabelPriority: "high"}
	lone := runtime.Pod{Name: "web", Labels: labels, Containers: []runtime.Container{{Name: "web", State: runtime.Running, Labels: labels}}}
	got := plan.New(plan.Defaults(), []runtime.Pod{lone}, plan.Rules{}, 0).Notes
	want := map[string]string{runtime.LabelGracePeriod: "the grace period is 20s", runtime.LabelPriority: "the priority is 0"}
	if len(got) != 2 || got[0].Effect != want[got[0].Key] || got[1].Effect != want[got[1].Key] || got[0].Key == got[1].Key {
		t.Errorf("New() notes %+v, want each label once, with %v", got, want)
	}
}

// A request cannot raise the limit of the container's unit. A smaller request is not raised to it
// either.
func TestAContainerHasNoMoreThanItsUnitGivesIt(t *testing.T) {
	for _, c := range []struct {
		unit, label string
		want        time.Duration
		limit       string
	}{
		{"10s", "", 10 * time.Second, ""},
		{"40s", "", 30 * time.Second, ""},
		{"10s", "5s", 5 * time.Second, ""},
		{"10s", "45s", 10 * time.Second, "unit web.service"},
		{"0s", "45s", 0, "unit web.service"},
	} {
		given, err := time.ParseDuration(c.unit)
		if err != nil {
			t.Fatal(err)
		}
		web := runtime.Container{ID: "c", Name: "web", State: runtime.Running, Unit: "web.service", UnitGrace: &given, Labels: map[string]string{}}
		if c.label != "" {
			web.Labels[runtime.LabelGracePeriod] = c.label
		}
		p := plan.New([]plan.PhaseSpec{{Name: "regular", Grace: time.Minute}}, []runtime.Pod{{ID: "p", Name: "web", Containers: []runtime.Container{web}}}, plan.Rules{}, 0)
		pod := p.Phases[0].Pods[0]
		for what, got := range map[string]plan.PlannedPod{"New()": pod, "Within()": plan.Within([]plan.PlannedPod{pod}, time.Minute)[0]} {
			if planned := got.Containers[0]; planned.Grace.Duration != c.want || planned.Unit != "web.service" {
				t.Errorf("%s = %v by %q for what its unit gives %s and its label says %q, want %v", what, planned.Grace.Duration, planned.Unit, c.unit, c.label, c.want)
			}
		}
		if got := pod.Containers[0].Limit; got != c.limit {
			t.Errorf("New() names the limit %q for what its unit gives %s and its label says %q, want %q", got, c.unit, c.label, c.limit)
		}
	}
}

func TestThePlanSaysWhatCutsAGraceShort(t *testing.T) {
	needed, needs := running("needed", "60s"), running("needs", "60s")
	needs.StopsBefore = []string{needed.ID}
	for name, c := range map[string]struct {
		containers []runtime.Container
		granted    time.Duration
		want       string
	}{
		"its phase":                {[]runtime.Container{running("c", "60s")}, 0, "c 20s of 1m0s: phase regular"},
		"logind":                   {[]runtime.Container{running("c", "60s")}, 24 * time.Second, "c 8s of 1m0s: logind's delay"},
		"those that stop after it": {[]runtime.Container{needs, needed}, 0, "needed 20s of 1m0s: phase regular, needs 10s of 1m0s: the containers that stop after it"},
		"nothing":                  {[]runtime.Container{running("c", "20s")}, 0, "c 20s of 0s: "},
		"no wish":                  {[]runtime.Container{running("c", "")}, 0, "c 20s of 0s: "},
	} {
		p := plan.New(plan.Defaults(), []runtime.Pod{pod("web", "", c.containers...)}, plan.Rules{}, c.granted)
		var got []string
		for _, c := range p.Phases[0].Pods[0].Containers {
			got = append(got, fmt.Sprintf("%s %v of %v: %s", c.Name, c.Grace.Duration, c.Wanted.Duration, c.Limit))
		}
		slices.Sort(got)
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s: New() = %s, want %s", name, got, c.want)
		}
	}
}

func TestPlanAsJSON(t *testing.T) {
	got, err := json.Marshal(plan.New(plan.Defaults(), []runtime.Pod{pod("web", "", running("nginx", "5s"))}, plan.Rules{}, 36*time.Second))
	want := `{"phases":[{"name":"regular","priority":0,"grace":"20s","pods":[` +
		`{"runtime":"containerd","id":"id-web","namespace":"default","name":"web","priority":0,"grace":"5s","containers":[` +
		`{"runtime":"containerd","id":"id-nginx","name":"nginx","grace":"5s"}]}]},` +
		`{"name":"critical","priority":2000000000,"grace":"10s","pods":[]}],"total":"30s","granted":"36s"}`
	if err != nil || string(got) != want {
		t.Errorf("Marshal() = %s, %v, want %s", got, err, want)
	}
	if got, err := json.Marshal(plan.New(nil, []runtime.Pod{pod("web", "", running("nginx", ""))}, plan.Rules{}, 0)); err != nil || string(got) != `{"phases":[],"total":"0s","granted":"0s"}` {
		t.Errorf("Marshal() without phases = %s, %v", got, err)
	}
}

// TestNewHolds checks properties that hold for any pods, phases and granted delays.
func TestNewHolds(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var phases []plan.PhaseSpec
		priority := int32(-1000)
		for range 1 + r.IntN(6) {
			priority += 1 + r.Int32N(500)
			phases = append(phases, plan.PhaseSpec{Name: fmt.Sprint(priority), Priority: priority, Grace: time.Duration(r.IntN(40)) * time.Second})
		}
		var pods []runtime.Pod
		alive := map[string]int{}
		for i := range r.IntN(40) {
			p := pod(fmt.Sprint("pod", i), fmt.Sprint(r.IntN(4000)-2000))
			for j := range r.IntN(4) {
				c := running(fmt.Sprint("c", j), fmt.Sprint(r.IntN(60), "s"))
				c.State = runtime.ContainerState(r.IntN(4))
				if c.State == runtime.Running || c.State == runtime.Unknown {
					alive[p.Name]++
				}
				p.Containers = append(p.Containers, c)
			}
			pods = append(pods, p)
		}
		granted := time.Duration(r.IntN(200)) * time.Second
		got := plan.New(phases, pods, plan.Rules{}, granted)
		slices.Reverse(pods)
		again := plan.New(phases, pods, plan.Rules{}, granted)
		if !reflect.DeepEqual(names(got), names(again)) {
			t.Fatalf("seed %d: New() depends on the order of pods: %v, %v", seed, names(got), names(again))
		}
		holds(t, seed, phases, got, alive, granted)
	}
}

func holds(t *testing.T, seed uint64, phases []plan.PhaseSpec, got plan.Plan, alive map[string]int, granted time.Duration) {
	t.Helper()
	var total, wanted time.Duration
	seen := map[string]bool{}
	for i, phase := range got.Phases {
		total += phase.Grace.Duration
		wanted += phases[i].Grace
		if phase.Grace.Duration < 0 || phase.Grace.Duration > phases[i].Grace {
			t.Errorf("seed %d: phase %s has grace %v of %v", seed, phase.Name, phase.Grace, phases[i].Grace)
		}
		// If a phase has less than requested, but more than a second, all higher phases have their
		// full time.
		if phase.Grace.Duration > time.Second {
			for j := i + 1; j < len(phases); j++ {
				if got.Phases[j].Grace.Duration < phases[j].Grace {
					t.Errorf("seed %d: phase %s has %v while the higher phase %s lacks time", seed, phase.Name, phase.Grace, phases[j].Name)
				}
			}
		}
		for _, p := range phase.Pods {
			if seen[p.Name] || alive[p.Name] == 0 || len(p.Containers) != alive[p.Name] {
				t.Errorf("seed %d: pod %s is in the plan twice, or with %d of %d running containers", seed, p.Name, len(p.Containers), alive[p.Name])
			}
			seen[p.Name] = true
			var longest metav1.Duration
			for _, c := range p.Containers {
				longest.Duration = max(longest.Duration, c.Grace.Duration)
			}
			if p.Grace != longest || p.Grace.Duration > phase.Grace.Duration+phase.Unused.Duration {
				t.Errorf("seed %d: pod %s has grace %v, its containers %v, its phase %v and %v", seed, p.Name, p.Grace, longest, phase.Grace, phase.Unused)
			}
			if i > 0 && p.Priority < phase.Priority || i < len(phases)-1 && p.Priority >= phases[i+1].Priority {
				t.Errorf("seed %d: pod %s of priority %d is in phase %d", seed, p.Name, p.Priority, phase.Priority)
			}
		}
	}
	if len(seen) != len(alive) {
		t.Errorf("seed %d: %d of %d running pods are planned", seed, len(seen), len(alive))
	}
	fits := wanted
	if granted > 0 {
		fits = min(wanted, granted-plan.Reserve(granted))
	}
	if total != fits || got.Total.Duration != wanted || got.Granted.Duration != granted {
		t.Errorf("seed %d: the phases take %v of %v granted, total %v, want %v and total %v", seed, total, granted, got.Total, fits, wanted)
	}
}

func names(p plan.Plan) [][]string {
	var all [][]string
	for _, phase := range p.Phases {
		var in []string
		for _, pod := range phase.Pods {
			in = append(in, pod.Name)
		}
		all = append(all, in)
	}
	return all
}
