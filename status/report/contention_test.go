package report

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// stalled are the facts of a host whose tasks stall for memory.
type stalled struct{ Facts }

func (s stalled) Now(ctx context.Context, guarded *shutdown.Status) status.Facts {
	f := s.Facts.Now(ctx, guarded)
	f.Stalls = []probe.Stall{{Resource: "memory", Full: probe.Averages{Minute: 50}}}
	return f
}

// contend makes the desk report memory contention while on is true.
func (d *desk) contend(t *testing.T, on *bool) {
	t.Helper()
	threshold, err := status.ParseThreshold("20%")
	if err != nil {
		t.Fatal(err)
	}
	options := d.o.Node()
	d.o.Facts = stalled{d.o.Facts}
	d.o.Node = func() status.Options {
		d.mu.Lock()
		defer d.mu.Unlock()
		o := options
		if *on {
			o.Pressure.PSI = []status.StallLimit{{Resource: "memory", Kind: "full", Window: time.Minute, Threshold: threshold}}
		}
		return o
	}
}

func (d *desk) types(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, c := range d.stored(t).Status.Conditions {
		list = append(list, string(c.Type))
	}
	return list
}

func TestADisabledConditionIsRemoved(t *testing.T) {
	const contention = string(status.MemoryContention)
	for name, beside := range map[string]bool{"on hostler's own Node": false, "on a kubelet's": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				on := true
				d.contend(t, &on)
				if beside {
					d.beside()
					d.client.Create(d.kubelets())
				}
				d.start(t)
				if got := d.types(t); !slices.Contains(got, contention) {
					t.Fatalf("conditions are %v, want %s among them", got, contention)
				}
				before := len(d.types(t))
				d.set(func() { on = false })
				d.Changed()
				synctest.Wait()
				if got := d.types(t); slices.Contains(got, contention) || len(got) != before-1 {
					t.Errorf("switched off, conditions are %v, want %s gone, and no other", got, contention)
				}
				if n := len(d.counted) - slices.IndexFunc(d.counted, func(c string) bool { return strings.HasPrefix(c, contention) }); n < 1 || slices.Contains(d.counted, contention+"=False") {
					t.Errorf("transitions are %v, want that it was raised, and no word of its end", d.counted)
				}
				d.set(func() { on = true })
				d.Changed()
				synctest.Wait()
				if got := d.types(t); !slices.Contains(got, contention) {
					t.Errorf("switched on again, conditions are %v, want %s among them", got, contention)
				}
			})
		})
	}
}

// The agent is stopped, its configuration is changed, and it is started again.
func TestAConditionDisabledDuringARestartIsRemoved(t *testing.T) {
	for name, beside := range map[string]bool{"on hostler's own Node": false, "on a kubelet's": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				on := true
				d.contend(t, &on)
				if beside {
					d.beside()
					d.client.Create(d.kubelets())
				}
				if err := d.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				raised := d.stored(t).Status.Conditions
				time.Sleep(time.Minute)
				same := d.again(t, "one")
				same.contend(t, &on)
				if beside {
					same.beside()
				}
				if err := same.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				at := func(conditions []corev1.NodeCondition) time.Time {
					i := slices.IndexFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == status.MemoryContention })
					if i < 0 {
						t.Fatalf("conditions are %v, want %s among them", conditions, status.MemoryContention)
					}
					return conditions[i].LastTransitionTime.Time
				}
				if since := at(same.stored(t).Status.Conditions); !since.Equal(at(raised)) || len(same.counted) != 0 {
					t.Errorf("after a restart it is raised since %v, transitions %v, want since %v and none", since, same.counted, at(raised))
				}
				on = false
				next := d.again(t, "one")
				next.o.Facts = stalled{next.o.Facts}
				if beside {
					next.beside()
				}
				if err := next.once(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				if got := next.types(t); slices.Contains(got, string(status.MemoryContention)) || len(got) != len(raised)-1 {
					t.Errorf("conditions are %v, want %s gone, and no other", got, status.MemoryContention)
				}
			})
		})
	}
}
