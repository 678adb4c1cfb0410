package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// project is a pod of services: "name" or "name:grace". "-" before the name: it is not running.
// After ">" are the services that it needs.
func project(services ...string) runtime.Pod {
	pod := runtime.Pod{ID: "compose:shop", Name: "shop"}
	for _, s := range services {
		service, needs, _ := strings.Cut(s, ">")
		name, grace, hasGrace := strings.Cut(service, ":")
		c := runtime.Container{ID: strings.TrimPrefix(name, "-"), Name: strings.TrimPrefix(name, "-"), State: runtime.Running, StopsBefore: strings.Fields(needs)}
		if strings.HasPrefix(name, "-") {
			c.State = runtime.Exited
		}
		if hasGrace {
			d, err := time.ParseDuration(grace)
			if err != nil {
				panic(err)
			}
			c.StopTimeout = &d
		}
		pod.Containers = append(pod.Containers, c)
	}
	return pod
}

// byUnit limits the grace period of one container by a unit.
func byUnit(p runtime.Pod, name string, gives time.Duration) runtime.Pod {
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Name == name {
			c.Unit, c.UnitGrace = name+".service", &gives
		}
	}
	return p
}

func TestDependentsStopBeforeWhatTheyNeed(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  runtime.Pod
		want string // by container: name=grace(time left for others)<those that end before it
	}{
		"nobody needs anybody":               {project("web:5s", "db:50s"), "web=5s db=20s"},
		"a chain that has time":              {project("web:5s>api", "api:5s>db", "db:5s"), "web=5s(10s) api=5s(5s)<web db=5s<api"},
		"a chain that has too little":        {project("web:30s>api", "api:30s>db", "db:30s"), "web=8s(12s) api=14s(6s)<web db=20s<api"},
		"who needs less leaves it to others": {project("web:2s>db", "db:50s"), "web=2s(18s) db=20s<web"},
		"who is given less by its unit":      {byUnit(project("web:30s>db", "db:50s"), "db", 3*time.Second), "web=17s(3s) db=3s<web"},
		"two need one, and one needs two":    {project("a:4s>db cache", "b:6s>db", "db:8s", "cache:1s"), "a=4s(8s) b=6s(8s) db=8s<a,b cache=1s<a"},
		"a service that is not there":        {project("web:5s>ghost"), "web=5s"},
		"by way of one that does not run":    {project("web:5s>api", "-api>db", "db:5s"), "web=5s(5s) db=5s<web"},
		"one that needs itself":              {project("web:5s>web"), "web=5s"},
		"a circle ends together, and before what it needs": {
			project("a:5s>b", "b:5s>a c", "c:5s"), "a=5s(5s) b=5s(5s) c=5s<a,b",
		},
		"a circle by way of one that does not run": {project("a:5s>b", "-b>c", "c:5s>a"), "a=5s c=5s"},
		"without end": {project("web:1000000h>db", "db:1000000h"), "web=10s(10s) db=20s<web"},
		"more of them than seconds": {
			project("a>b", "b>c", "c>d", "d>e", "e>f", "f>g", "g>h", "h>i", "i>j", "j>k", "k>l", "l>m", "m>n", "n>o", "o>p", "p>q", "q>r", "r>s", "s>t", "t>u", "u>v", "v>w", "w>x", "x>y", "y"),
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan.New([]plan.PhaseSpec{{Name: "regular", Grace: 20 * time.Second}}, []runtime.Pod{tt.pod}, plan.Rules{}, 0)
			containers := p.Phases[0].Pods[0].Containers
			if tt.want == "" {
				checkFits(t, containers, 20*time.Second)
				return
			}
			if got := described(containers); got != tt.want {
				t.Errorf("New() = %s, want %s", got, tt.want)
			}
		})
	}
}

func described(containers []plan.PlannedContainer) string {
	var words []string
	for _, c := range containers {
		word := fmt.Sprintf("%s=%v", c.Name, c.Grace.Duration)
		if c.Reserve > 0 {
			word += fmt.Sprintf("(%v)", c.Reserve)
		}
		if len(c.After) > 0 {
			slices.Sort(c.After)
			word += "<" + strings.Join(c.After, ",")
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// checkFits fails unless each container of a chain has some time, and all fit into the phase.
func checkFits(t *testing.T, chain []plan.PlannedContainer, phase time.Duration) {
	t.Helper()
	left := phase
	for i, c := range chain {
		if share := left - c.Reserve; share <= 0 {
			t.Errorf("New() leaves container %d of %d %v", i, len(chain), share)
		}
		left = c.Reserve
	}
}

func TestAnOrderIsFittedIntoWhatIsLeft(t *testing.T) {
	p := plan.New([]plan.PhaseSpec{{Name: "regular", Grace: 20 * time.Second}}, []runtime.Pod{project("web:30s>db", "db:30s")}, plan.Rules{}, 0)
	pod := p.Phases[0].Pods[0]
	if got := described(plan.Within([]plan.PlannedPod{pod}, 6*time.Second)[0].Containers); got != "web=3s(3s) db=6s<web" {
		t.Errorf("Within(6s) = %s", got)
	}
	if got := described(plan.Within([]plan.PlannedPod{pod}, 0)[0].Containers); got != "web=0s db=0s<web" {
		t.Errorf("Within(0) = %s", got)
	}
	if got := described(pod.Containers); got != "web=10s(10s) db=20s<web" {
		t.Errorf("the plan itself became %s", got)
	}
	if bound := p.Bound(); bound != 20*time.Second {
		t.Errorf("Bound() = %v, want the phase's 20s", bound)
	}
}

// With any dependencies, every container stops in time, and none is omitted.
func FuzzOrder(f *testing.F) {
	f.Add([]byte{0x12, 0x23, 0x31, 0x44}, uint8(5))
	f.Fuzz(func(t *testing.T, edges []byte, stopped uint8) {
		pod := runtime.Pod{ID: "p", Name: "p"}
		for i := range 8 {
			c := runtime.Container{ID: fmt.Sprint(i), Name: fmt.Sprint(i), State: runtime.Running}
			if stopped&(1<<i) != 0 {
				c.State = runtime.Exited
			}
			pod.Containers = append(pod.Containers, c)
		}
		for _, e := range edges {
			c := &pod.Containers[e>>4&7]
			c.StopsBefore = append(c.StopsBefore, fmt.Sprint(e&15)) // some of these do not exist
		}
		p := plan.New([]plan.PhaseSpec{{Name: "regular", Grace: 20 * time.Second}}, []runtime.Pod{pod}, plan.Rules{}, 0)
		ended := map[string]bool{}
		var left []plan.PlannedContainer
		for _, planned := range p.Phases[0].Pods {
			left = planned.Containers
		}
		for len(left) > 0 {
			before := len(left)
			var now []string
			left = slices.DeleteFunc(left, func(c plan.PlannedContainer) bool {
				ready := !slices.ContainsFunc(c.Waits, func(id string) bool { return !ended[id] })
				if ready {
					now = append(now, c.ID)
				}
				return ready
			})
			if len(left) == before {
				t.Fatalf("nobody's turn comes any more of %+v", left)
			}
			for _, id := range now {
				ended[id] = true
			}
		}
	})
}
