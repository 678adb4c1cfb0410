package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/test/machine/job"
)

// Pod is a pod to run, and ContainerSpec a container of it.
type (
	Pod           = job.Pod
	ContainerSpec = job.Container
)

// Deploy runs pods, and returns when all their workloads have recorded that they run.
func (m *Machine) Deploy(pods ...Pod) {
	m.t.Helper()
	order := job.Order{CgroupParent: m.Options.CgroupParent}
	for _, pod := range pods {
		if pod.Namespace == "" {
			pod.Namespace = "default"
		}
		if len(pod.Containers) == 0 {
			pod.Containers = []ContainerSpec{{Name: "main"}}
		}
		order.Pods = append(order.Pods, pod)
	}
	data, err := json.Marshal(order)
	if err != nil {
		m.t.Fatal(err)
	}
	m.feed("guest pods", bytes.NewReader(data))
}

// Life is one run of one container, as its workload recorded it.
type Life struct {
	Namespace, Pod, Container string

	Boot     string // ID of its boot
	Started  time.Time
	Signals  []job.Event // in the order of their arrival
	Ended    time.Time   // when it ended by itself; zero if it was killed or still runs
	LastSeen time.Time   // when it was last alive, up to 0.2 s before it was killed
}

// Term returns when it first got SIGTERM; zero if it never did.
func (l Life) Term() time.Time {
	i := slices.IndexFunc(l.Signals, func(e job.Event) bool { return e.Signal == "SIGTERM" })
	if i < 0 {
		return time.Time{}
	}
	return l.Signals[i].Time
}

// CutOff reports whether it did not end by itself: it was killed, or still runs.
func (l Life) CutOff() bool { return l.Ended.IsZero() }

// Gone returns when it ended by itself or was last alive.
func (l Life) Gone() time.Time {
	if l.CutOff() {
		return l.LastSeen
	}
	return l.Ended
}

// Work has the records of all workloads, over all boots, in the order of their starts.
type Work []Life

// Work reads the records of the workloads.
func (m *Machine) Work() Work {
	m.t.Helper()
	out := m.Run("cd " + job.Dir + " && cat *.events *.alive")
	lives := map[string]*Life{}
	for line := range strings.Lines(out) {
		var e job.Event
		// The last line may be incomplete if the workload was killed.
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		l := lives[e.Life]
		if l == nil {
			l = &Life{Namespace: e.Namespace, Pod: e.Pod, Container: e.Container, Boot: e.Boot}
			lives[e.Life] = l
		}
		switch e.Kind {
		case job.Started:
			l.Started = e.Time
		case job.Signal:
			l.Signals = append(l.Signals, e)
		case job.Ended:
			l.Ended = e.Time
		case job.Alive:
		}
		if e.Time.After(l.LastSeen) {
			l.LastSeen = e.Time
		}
	}
	var w Work
	for _, l := range lives {
		w = append(w, *l)
	}
	slices.SortFunc(w, func(a, b Life) int { return a.Started.Compare(b.Started) })
	return w
}

// Boot returns the lives of one boot.
func (w Work) Boot(id string) Work {
	return slices.DeleteFunc(slices.Clone(w), func(l Life) bool { return l.Boot != id })
}

// Pod returns the lives of a pod's containers, in any namespace.
func (w Work) Pod(name string) Work {
	return slices.DeleteFunc(slices.Clone(w), func(l Life) bool { return l.Pod != name })
}

// TermBefore reports whether the pods a and b got SIGTERM, and no container of a got it after any
// of b.
func (w Work) TermBefore(a, b string) bool {
	return before(w.Pod(a), w.Pod(b), Life.Term, Life.Term)
}

// GoneBefore reports whether all of pod a had ended before any of b got SIGTERM.
func (w Work) GoneBefore(a, b string) bool {
	return before(w.Pod(a), w.Pod(b), Life.Gone, Life.Term)
}

func before(a, b Work, of, than func(Life) time.Time) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	for _, first := range a {
		for _, second := range b {
			x, y := of(first), than(second)
			if x.IsZero() || y.IsZero() || x.After(y) {
				return false
			}
		}
	}
	return true
}

// Ended reports whether all containers of a pod ended by themselves.
func (w Work) Ended(pod string) bool {
	lives := w.Pod(pod)
	return len(lives) > 0 && !slices.ContainsFunc(lives, Life.CutOff)
}

// String returns the work for failures: a line for each life, with times since the first start.
func (w Work) String() string {
	if len(w) == 0 {
		return "no workload has written down anything"
	}
	since := func(t time.Time) string { return t.Sub(w[0].Started).Round(time.Millisecond).String() }
	var out strings.Builder
	for _, l := range w {
		fmt.Fprintf(&out, "%s/%s/%s boot %.8s: started %s", l.Namespace, l.Pod, l.Container, l.Boot, since(l.Started))
		for _, s := range l.Signals {
			fmt.Fprintf(&out, ", %s %s", s.Signal, since(s.Time))
		}
		if l.CutOff() {
			fmt.Fprintf(&out, ", last seen %s\n", since(l.LastSeen))
		} else {
			fmt.Fprintf(&out, ", ended %s\n", since(l.Ended))
		}
	}
	return out.String()
}
