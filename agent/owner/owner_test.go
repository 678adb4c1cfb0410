package owner

import (
	"context"
	"errors"
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
	"hostler.io/hostler/internal/trust/trusttest"
	"hostler.io/hostler/systemd"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// supervised runs the loop in a bubble until the test ends.
func supervised(t *testing.T, l *loop.Loop) {
	t.Helper()
	var done sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	done.Go(func() { l.Supervise(ctx, discard()) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

// leaseLoop is a loop that renews a Lease while hostler owns it.
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

func TestOwnersReportWhenTheyChange(t *testing.T) {
	seen := map[Job]Owner{}
	o := New(map[Job]Switch{ImageGC: Off}, func(context.Context, map[Job]Owner) map[Job]Owner { return seen }, discard())
	if mine, _, _ := o.Mine(Lease); mine {
		t.Error("Mine() before the first scan = true, want false: nothing may be changed yet")
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

func TestFindKubelets(t *testing.T) {
	type process = trusttest.Process
	open := filepath.Join(t.TempDir(), "kubelet")
	if err := errors.Join(os.WriteFile(open, nil, 0o755), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		processes []process
		want      string
		refused   string
	}{
		"a host without one":                    {processes: []process{{PID: 70, Name: "containerd"}}},
		"a kubelet":                             {processes: []process{{PID: 812, Name: "kubelet"}}, want: "process kubelet, pid 812"},
		"MicroK8s' kubelite":                    {processes: []process{{PID: 9, Name: "kubelite", Cgroup: "/system.slice/snap.microk8s.daemon-kubelite.service"}}, want: "process kubelite, pid 9"},
		"a k3s server":                          {processes: []process{{PID: 9, Name: "k3s-server", Cgroup: "/system.slice/k3s.service"}}, want: "process k3s-server, pid 9"},
		"a k3s agent":                           {processes: []process{{PID: 9, Name: "k3s-agent"}}, want: "process k3s-agent, pid 9"},
		"names that only look alike":            {processes: []process{{PID: 5, Name: "kubelet-csr-appr"}, {PID: 6, Name: "kubectl"}, {PID: 7, Name: "my-kubelet"}}},
		"one that nobody has reaped":            {processes: []process{{PID: 812, Name: "kubelet", State: "Z"}}},
		"a node in a container, such as kind's": {processes: []process{{PID: 4000, Name: "kubelet", Namespace: "kind"}}},
		"kind's and the host's own":             {processes: []process{{PID: 400, Name: "kubelet", Namespace: "kind"}, {PID: 4000, Name: "kubelet"}}, want: "process kubelet, pid 4000"},
		"a user's":                              {processes: []process{{PID: 812, Name: "kubelet", UID: 65534}}, refused: "runs as user 65534, not as root"},
		"a user's service":                      {processes: []process{{PID: 812, Name: "kubelet", UID: 1000, Cgroup: "/user.slice/user-1000.slice/user@1000.service/app.slice/kubelet.service"}}, refused: "runs as user 1000, not as root"},
		"a user's before the host's own":        {processes: []process{{PID: 70, Name: "kubelet", UID: 1000}, {PID: 812, Name: "kubelet"}}, want: "process kubelet, pid 812", refused: "runs as user 1000, not as root"},
		"in root's session":                     {processes: []process{{PID: 812, Name: "kubelet", Cgroup: "/user.slice/user-0.slice/session-3.scope"}}, refused: "is in a user session"},
		"in a container that shares namespaces": {processes: []process{{PID: 812, Name: "kubelet", Cgroup: "/system.slice/docker-0123.scope"}}, refused: "is in a user session"},
		"in a cgroup of its own":                {processes: []process{{PID: 812, Name: "kubelet", Cgroup: "/kubelet.slice"}}, want: "process kubelet, pid 812"},
		"in a cgroup that it has made":          {processes: []process{{PID: 812, Name: "kubelet", Cgroup: "/systemd/system.slice"}}, want: "process kubelet, pid 812"},
		"with mounts of its own":                {processes: []process{{PID: 812, Name: "kubelet", Mounts: "own"}}, want: "process kubelet, pid 812"},
		"in a container of a service":           {processes: []process{{PID: 812, Name: "kubelet", Mounts: "own", Cgroup: "/system.slice/web.service/libpod-payload-0123"}}, refused: "is not in the host's mount namespace"},
		"in a container with the host's PIDs":   {processes: []process{{PID: 812, Name: "kubelet", Mounts: "own", Cgroup: "/docker/0123"}}, refused: "is not in the host's mount namespace"},
		"in the cgroup of its service":          {processes: []process{{PID: 812, Name: "kubelet", Mounts: "own", Cgroup: "/system.slice/web.service", Root: t.TempDir(), Confined: true}}, refused: "has another root directory than the host"},
		"in a container with the host's files":  {processes: []process{{PID: 812, Name: "kubelet", Mounts: "own", Cgroup: "/system.slice/web.service", Confined: true}}, refused: "has no CAP_SYS_ADMIN"},
		"MicroK8s' in a snap":                   {processes: []process{{PID: 9, Name: "kubelite", Mounts: "own", Cgroup: "/system.slice/snap.microk8s.daemon-kubelite.service", Root: t.TempDir()}}, want: "process kubelite, pid 9"},
		"a program that anybody can write":      {processes: []process{{PID: 812, Name: "kubelet", Program: open}}, refused: "runs a program that users other than root can change"},
	} {
		t.Run(name, func(t *testing.T) {
			got := FindKubelets(trusttest.Proc(t, c.processes...))
			if got.Evidence() != c.want {
				t.Errorf("Evidence() = %q, want %q", got.Evidence(), c.want)
			}
			if len(got.Refused) > 1 || (len(got.Refused) == 1) != (c.refused != "") || c.refused != "" && !strings.Contains(got.Refused[0].Untrusted, c.refused) {
				t.Errorf("refused are %+v, want %q", got.Refused, c.refused)
			}
		})
	}
	if got := FindKubelets(filepath.Join(t.TempDir(), "none")); got.Evidence() != "" {
		t.Errorf("FindKubelets() without /proc = %+v, want none found", got)
	}
}

func TestALockIsAKubeletsByItsProcess(t *testing.T) {
	type process = trusttest.Process
	proc := trusttest.Proc(t, process{PID: 812, Name: "kubelet"}, process{PID: 813, Name: "systemd-inhibit", Cgroup: "/system.slice/kubelet.service"},
		process{PID: 900, Name: "backup"}, process{PID: 901, Name: "systemd-inhibit", UID: 1000}, process{PID: 902, Name: "kubelet", Namespace: "kind"},
		process{PID: 903, Name: "kubelet", Cgroup: "/system.slice/kubelet.service", Confined: true})
	lock := systemd.InhibitorLock{What: "shutdown", Who: "kubelet", Why: "Kubelet needs time", Mode: "delay", PID: 812}
	for name, c := range map[string]struct {
		change func(*systemd.InhibitorLock)
		want   bool
	}{
		"its own":                        {func(*systemd.InhibitorLock) {}, true},
		"of what it runs":                {func(l *systemd.InhibitorLock) { l.PID = 813 }, true},
		"of more than shutdowns":         {func(l *systemd.InhibitorLock) { l.What = "shutdown:sleep" }, true},
		"of sleep":                       {func(l *systemd.InhibitorLock) { l.What = "sleep" }, false},
		"that blocks":                    {func(l *systemd.InhibitorLock) { l.Mode = "block" }, false},
		"by another name":                {func(l *systemd.InhibitorLock) { l.Who = "backup" }, false},
		"of a user's":                    {func(l *systemd.InhibitorLock) { l.UID, l.PID = 65534, 901 }, false},
		"of a user's by root's process":  {func(l *systemd.InhibitorLock) { l.UID = 65534 }, false},
		"of another service":             {func(l *systemd.InhibitorLock) { l.PID = 900 }, false},
		"of a container":                 {func(l *systemd.InhibitorLock) { l.PID = 902 }, false},
		"of a container in its cgroup":   {func(l *systemd.InhibitorLock) { l.PID = 903 }, false},
		"of a process that has ended":    {func(l *systemd.InhibitorLock) { l.PID = 7777 }, false},
		"of a user's process under root": {func(l *systemd.InhibitorLock) { l.PID = 901 }, false},
	} {
		l := lock
		c.change(&l)
		others := []systemd.InhibitorLock{{What: "shutdown", Who: "kubelet", Mode: "delay", UID: 1000, PID: 901}, l}
		if got := FindKubelets(proc).Lock(proc, others); (got != nil) != c.want || got != nil && *got != l {
			t.Errorf("%s: Lock() = %+v, want it counted: %t", name, got, c.want)
		}
	}
	if got := FindKubelets(trusttest.Proc(t)).Lock(proc, []systemd.InhibitorLock{lock}); got != nil {
		t.Errorf("Lock() of a host without a kubelet = %+v, want none", got)
	}
}

func TestAKubeletIsFoundWhoeverOwnsItsJob(t *testing.T) {
	others := map[Job]Owner{ContainerGC: {Name: Kubelet, Evidence: "process kubelet"}}
	o := New(map[Job]Switch{ContainerGC: On}, func(context.Context, map[Job]Owner) map[Job]Owner { return maps.Clone(others) }, discard())
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
		t.Errorf("Other() returns an owner that the last scan did not find")
	}
}

func TestEvidenceIsForPeople(t *testing.T) {
	for _, owner := range decide(nil, nil) {
		if strings.TrimSpace(owner.Evidence) == "" {
			t.Errorf("owner %+v comes without evidence", owner)
		}
	}
}

func TestALoopIsPausedWhileAnotherOwnerHasTheJob(t *testing.T) {
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
				l.Heartbeat(nil)
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
		if log.Count("yielding job to its owner") != 1 || log.Count("process kubelet, pid 7") != 1 {
			t.Errorf("log = %s, want one line that names owner and evidence", &log)
		}
		delete(seen, Lease)
		owners.Refresh(t.Context())
		check("it went", true)
		if log.Count("hostler owns job again") != 1 {
			t.Errorf("log = %s, want one line that the job is back", &log)
		}
	})
}

func TestALoopThatHangsWhenItGetsItsJobIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[Job]Owner{Lease: {Name: Kubelet}}
		owners := New(nil, func(context.Context, map[Job]Owner) map[Job]Owner { return seen }, discard())
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

// A failure while another owner has the job does not count for hostler; an earlier one does.
func TestALoopThatFailsWithItsJobIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owners := New(nil, func(context.Context, map[Job]Owner) map[Job]Owner { return map[Job]Owner{} }, discard())
		owners.Refresh(t.Context())
		l := leaseLoop(owners, 0, func(context.Context, *loop.Loop) error { return errors.New("broken") })
		supervised(t, l)
		synctest.Wait()
		if s := l.Health(time.Now()); s.Restarts != 1 || s.LastError != "broken" {
			t.Errorf("Health() = %+v, want one restart after: broken", s)
		}
	})
}
