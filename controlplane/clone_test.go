package controlplane_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// instance returns the policy of one process of this machine.
func instance(name string) controlplane.LeasePolicy {
	p := policy(here)
	p.Instance = name
	return p
}

func TestTwoHostsWithOneMachineIDDetectEachOther(t *testing.T) {
	for name, second := range map[string]string{
		"of another boot":                   "boot-2/7/b",
		"copied with its memory, and alive": "boot-1/7/a",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, log := controlplanetest.NewFake(nil), &journal{}
				first, _ := keep(t, fake, instance("boot-1/7/a"), log.logger())
				after(15 * time.Second)
				other, stop := keep(t, fake, instance(second), quiet())
				after(35 * time.Second)
				for who, k := range map[string]*controlplane.LeaseKeeper{"the first": first, "the second": other} {
					clone := k.Stats().Clone
					if clone == nil {
						t.Fatalf("Stats().Clone of %s = nil, want it seen", who)
					}
					if text := clone.Message("n"); !strings.Contains(text, "also writes this Node") || !strings.Contains(clone.Fix(), "systemd-machine-id-setup") {
						t.Errorf("clone of %s: %q, %q, want what is wrong and the fix", who, text, clone.Fix())
					}
				}
				calls := fake.Calls(controlplanetest.Any)
				after(10 * time.Minute)
				if n := fake.Calls(controlplanetest.Any) - calls; n > 2*3*61 {
					t.Errorf("calls of both in ten minutes = %d, want at most three in each interval of each", n)
				}
				if n := log.count("ERROR"); n != 1 {
					t.Errorf("errors logged = %d, want one", n)
				}
				if stats := first.Stats(); stats.Expired(40*time.Second) != nil {
					t.Errorf("Expired() of the first = %v, want the lease renewed", stats.Expired(40*time.Second))
				}
				stop()
				after(time.Minute)
				if clone := first.Stats().Clone; clone != nil {
					t.Errorf("Stats().Clone a minute after the other has ended = %+v, want none", clone)
				}
			})
		})
	}
}

func TestARestartIsNoClone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, log := controlplanetest.NewFake(nil), &journal{}
		for i, name := range []string{"boot-1/7/a", "boot-1/8/b", "boot-2/7/c", "boot-2/7/d"} {
			keeper, stop := keep(t, fake, instance(name), log.logger())
			after(time.Second)
			fake.Inject(controlplanetest.RenewLease, controlplanetest.Fault{LoseAnswer: true, Times: 3})
			after(time.Minute)
			fake.Inject(controlplanetest.Any, controlplanetest.Fault{Stale: true, Times: 6})
			after(time.Minute)
			lease := stored(t, fake)
			lease.Labels = map[string]string{"noted": name}
			if _, err := fake.RenewLease(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			after(time.Minute)
			if stats := keeper.Stats(); stats.Clone != nil || stats.ConsecutiveFailures != 0 || log.count("ERROR") != 0 {
				t.Errorf("Stats() of run %d = %+v, want no clone and no failure", i, stats)
			}
			stop()
		}
	})
}

func TestNamesOfClonesAreThoseOfNodes(t *testing.T) {
	eleven := "k,j,i,h,g,f,e,d,c,b,a"
	for name, c := range map[string]struct{ value, want string }{
		"none":                     {"", ""},
		"one":                      {"b", "b"},
		"several, in order":        {"c, b,c", "b c"},
		"itself":                   {"n,b", "b"},
		"what a terminal obeys":    {"\x1b[2J,b\n,c\u202e,d", "b d"},
		"no names":                 {",,UPPER,a b,../x", ""},
		"more than ten":            {eleven, "b c d e f g h i j k"},
		"a megabyte":               {strings.Repeat("x", 1<<20) + ",b", "b"},
		"a megabyte of separators": {strings.Repeat(",", 1<<20) + "b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			node.Name, node.Annotations = "n", map[string]string{controlplane.AnnotationSameMachine: c.value}
			var got []string
			for _, clone := range controlplane.NamedClones(node) {
				got = append(got, clone.Node)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("NamedClones() of %.50q = %q, want %q", c.value, got, c.want)
			}
		})
	}
}
