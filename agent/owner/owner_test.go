package owner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/internal/loop"
)

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// supervised runs the loop in the background of a bubble until the test ends.
func supervised(t *testing.T, l *loop.Loop) {
	t.Helper()
	var done sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	done.Go(func() { l.Supervise(ctx, silent()) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

// leaseLoop is a loop that renews a lease while that is hostler's.
func leaseLoop(o *Owners, patience time.Duration, run func(ctx context.Context, l *loop.Loop) error) *loop.Loop {
	var l *loop.Loop
	l = loop.New("lease", patience, func(ctx context.Context) error {
		return o.While(ctx, Lease, l, func(ctx context.Context) error { return run(ctx, l) })
	})
	return l
}

func TestEachJobHasOneOwner(t *testing.T) {
	kubelet := Owner{Name: Kubelet, Evidence: "process kubelet, pid 7"}
	for name, c := range map[string]struct {
		set   Switch
		there bool
		want  Owner
	}{
		"auto, alone":                 {Auto, false, Owner{Name: "hostler", Evidence: "no other owner found"}},
		"auto, beside a kubelet":      {Auto, true, kubelet},
		"forced, alone":               {On, false, Owner{Name: "hostler", Evidence: "switched on in the configuration"}},
		"forced, beside a kubelet":    {On, true, Owner{Name: "hostler", Evidence: "switched on in the configuration, although there is a kubelet: process kubelet, pid 7"}},
		"forbidden, alone":            {Off, false, Owner{Name: "none", Evidence: "switched off in the configuration"}},
		"forbidden, beside a kubelet": {Off, true, kubelet},
	} {
		t.Run(name, func(t *testing.T) {
			for _, j := range Jobs() {
				switches := map[Job]Switch{}
				for _, other := range Jobs() {
					switches[other] = Auto
				}
				switches[j] = c.set
				seen := map[Job]Owner{}
				if c.there {
					seen[j] = kubelet
				}
				got := decide(switches, seen)
				if got[j] != c.want {
					t.Errorf("decide()[%s] = %+v, want %+v", j, got[j], c.want)
				}
				if len(got) != len(Jobs()) {
					t.Errorf("decide() = %v, want an owner for each of %v", got, Jobs())
				}
				for _, other := range Jobs() {
					if other != j && got[other].Name != Hostler {
						t.Errorf("decide()[%s] = %+v, want it untouched by %s", other, got[other], j)
					}
				}
			}
		})
	}
}

func TestOwnersTellWhenTheyChange(t *testing.T) {
	seen := map[Job]Owner{}
	o := New(map[Job]Switch{ImageGC: Off}, func(context.Context, map[Job]Owner) map[Job]Owner { return seen }, silent())
	if mine, _, _ := o.Mine(Lease); mine {
		t.Error("Mine() before the first look = true, want nothing to be touched yet")
	}
	if !o.Refresh(t.Context()) || o.Refresh(t.Context()) {
		t.Error("Refresh() = want true at first, then false as long as nothing changes")
	}
	mine, _, changed := o.Mine(Lease)
	if imageGC, owner, _ := o.Mine(ImageGC); !mine || imageGC || owner.Name != None {
		t.Errorf("Mine() = %v for the lease, %v for imageGC (%+v), want the first alone", mine, imageGC, owner)
	}
	select {
	case <-changed:
		t.Error("the channel is closed although nothing changed")
	default:
	}
	seen[Lease] = Owner{Name: Kubelet, Evidence: "here"}
	if !o.Refresh(t.Context()) {
		t.Error("Refresh() with a kubelet = false, want true")
	}
	<-changed
	if mine, owner, _ := o.Mine(Lease); mine || owner.Name != Kubelet {
		t.Errorf("Mine() beside a kubelet = %v, %+v, want the kubelet's", mine, owner)
	}
	if all := o.All(); len(all) != len(Jobs()) || all["lease"].Name != Kubelet || all["node"].Name != Hostler {
		t.Errorf("All() = %v, want every job with its owner", all)
	}
}

// process is one in a proc tree; its namespace may be left out, as where it
// cannot be read.
type process struct {
	pid       int
	comm      string
	namespace string
}

func procTree(t *testing.T, ours string, processes ...process) string {
	t.Helper()
	root := t.TempDir()
	write := func(folder, comm, namespace string) {
		if err := os.MkdirAll(filepath.Join(root, folder, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		if comm != "" {
			if err := os.WriteFile(filepath.Join(root, folder, "comm"), []byte(comm+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if namespace != "" {
			if err := os.Symlink(namespace, filepath.Join(root, folder, "ns/pid")); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("self", "hostler", ours)
	if err := os.WriteFile(filepath.Join(root, "uptime"), []byte("1 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		write(fmt.Sprint(p.pid), p.comm, p.namespace)
	}
	return root
}

func TestFindKubelet(t *testing.T) {
	const host, kind = "pid:[4026531836]", "pid:[4026532998]"
	for name, c := range map[string]struct {
		ours      string
		processes []process
		want      string
	}{
		"a host without one":                          {host, []process{{1, "systemd", host}, {70, "containerd", host}}, ""},
		"a kubelet":                                   {host, []process{{1, "systemd", host}, {812, "kubelet", host}}, "process kubelet, pid 812"},
		"MicroK8s' kubelite":                          {host, []process{{9, "kubelite", host}}, "process kubelite, pid 9"},
		"a k3s server":                                {host, []process{{9, "k3s-server", host}}, "process k3s-server, pid 9"},
		"a k3s agent":                                 {host, []process{{9, "k3s-agent", host}}, "process k3s-agent, pid 9"},
		"a node in a container, such as kind's":       {host, []process{{4000, "kubelet", kind}}, ""},
		"kind's and the host's own":                   {host, []process{{400, "kubelet", kind}, {4000, "kubelet", host}}, "process kubelet, pid 4000"},
		"hostler itself in such a node":               {kind, []process{{4000, "kubelet", kind}}, "process kubelet, pid 4000"},
		"namespaces that cannot be read":              {host, []process{{812, "kubelet", ""}}, "process kubelet, pid 812"},
		"a process that has ended while it was read":  {host, []process{{811, "", host}, {812, "kubelet", host}}, "process kubelet, pid 812"},
		"names that only look alike":                  {host, []process{{5, "kubelet-csr-appr", host}, {6, "kubectl", host}, {7, "my-kubelet", host}}, ""},
		"no namespace of our own to compare it with":  {"", []process{{812, "kubelet", host}}, "process kubelet, pid 812"},
		"a proc folder that is named like no process": {host, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, found := FindKubelet(procTree(t, c.ours, c.processes...))
			if got != c.want || found != (c.want != "") {
				t.Errorf("FindKubelet() = %q, %v, want %q", got, found, c.want)
			}
		})
	}
	if got, found := FindKubelet(filepath.Join(t.TempDir(), "none")); found || got != "" {
		t.Errorf("FindKubelet() without /proc = %q, %v, want none found", got, found)
	}
}

func TestAKubeletIsSeenWhoeverHasItsJob(t *testing.T) {
	others := map[Job]Owner{ContainerGC: {Name: Kubelet, Evidence: "process kubelet"}}
	o := New(map[Job]Switch{ContainerGC: On}, func(context.Context, map[Job]Owner) map[Job]Owner { return maps.Clone(others) }, silent())
	other := func(j Job) bool { _, found := o.Other(j); return found }
	if other(ContainerGC) {
		t.Errorf("Other() has one before anybody looked")
	}
	o.Refresh(t.Context())
	if mine, _, _ := o.Mine(ContainerGC); !mine || !other(ContainerGC) || other(Lease) {
		t.Errorf("Mine() = %v, Other() = %v, want the job hostler's and the kubelet seen, for that job alone", mine, other(ContainerGC))
	}
	delete(others, ContainerGC)
	o.Refresh(t.Context())
	if other(ContainerGC) {
		t.Errorf("Other() has one that the last look did not see")
	}
}

func TestEvidenceIsForPeople(t *testing.T) {
	for _, owner := range decide(nil, nil) {
		if strings.TrimSpace(owner.Evidence) == "" {
			t.Errorf("owner %+v comes without evidence", owner)
		}
	}
}

func TestALoopRestsWhileAnotherOwnerHasTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kubelet := Owner{Name: Kubelet, Evidence: "process kubelet, pid 7"}
		seen := map[Job]Owner{}
		var log logtest.Book
		owners := New(nil, func(context.Context, map[Job]Owner) map[Job]Owner { return seen }, log.Logger())
		owners.Refresh(t.Context())
		running := false
		l := leaseLoop(owners, 40*time.Second, func(ctx context.Context, l *loop.Loop) error {
			running = true
			defer func() { running = false }()
			for ctx.Err() == nil {
				l.Beat(nil)
				select {
				case <-time.After(10 * time.Second):
				case <-ctx.Done():
				}
			}
			return ctx.Err()
		})
		supervised(t, l)
		check := func(what string, want bool) {
			t.Helper()
			for range 10 {
				time.Sleep(time.Minute)
				synctest.Wait()
				if running != want || l.Stuck(time.Now()) || l.Health(time.Now()).Restarts != 0 {
					t.Fatalf("%s: running = %v, %+v, want running = %v and a healthy loop", what, running, l.Health(time.Now()), want)
				}
			}
		}
		check("alone on the host", true)
		seen[Lease] = kubelet
		owners.Refresh(t.Context())
		check("a kubelet came", false)
		if log.Count("job is left to its owner") != 1 || log.Count("process kubelet, pid 7") != 1 {
			t.Errorf("log = %s, want one line that names owner and evidence", &log)
		}
		delete(seen, Lease)
		owners.Refresh(t.Context())
		check("it went", true)
		if log.Count("job is hostler's again") != 1 {
			t.Errorf("log = %s, want one line that the job is back", &log)
		}
	})
}

func TestALoopThatHangsWhenItsJobComesBackIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[Job]Owner{Lease: {Name: Kubelet}}
		owners := New(nil, func(context.Context, map[Job]Owner) map[Job]Owner { return seen }, silent())
		owners.Refresh(t.Context())
		l := leaseLoop(owners, 40*time.Second, func(ctx context.Context, _ *loop.Loop) error { <-ctx.Done(); return ctx.Err() })
		supervised(t, l)
		time.Sleep(time.Hour)
		delete(seen, Lease)
		owners.Refresh(t.Context())
		time.Sleep(41 * time.Second)
		if !l.Stuck(time.Now()) {
			t.Error("Stuck() = false, want the lease stuck, which was not renewed once since it is ours")
		}
	})
}

// A failure while the job is lost is the owner's business, one before it is not.
func TestALoopThatFailsWithItsJobIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owners := New(nil, func(context.Context, map[Job]Owner) map[Job]Owner { return map[Job]Owner{} }, silent())
		owners.Refresh(t.Context())
		l := leaseLoop(owners, 0, func(context.Context, *loop.Loop) error { return errors.New("broken") })
		supervised(t, l)
		synctest.Wait()
		if s := l.Health(time.Now()); s.Restarts != 1 || s.LastError != "broken" {
			t.Errorf("Health() = %+v, want one restart after: broken", s)
		}
	})
}
