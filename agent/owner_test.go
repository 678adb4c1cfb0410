package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
)

func TestEachJobHasOneOwner(t *testing.T) {
	kubelet := api.Owner{Name: api.OwnerKubelet, Evidence: "process kubelet, pid 7"}
	for name, c := range map[string]struct {
		set   config.Switch
		there bool
		want  api.Owner
	}{
		"auto, alone":                 {config.Auto, false, api.Owner{Name: "hostler", Evidence: "no other owner found"}},
		"auto, beside a kubelet":      {config.Auto, true, kubelet},
		"forced, alone":               {config.On, false, api.Owner{Name: "hostler", Evidence: "switched on in the configuration"}},
		"forced, beside a kubelet":    {config.On, true, api.Owner{Name: "hostler", Evidence: "switched on in the configuration, although there is a kubelet: process kubelet, pid 7"}},
		"forbidden, alone":            {config.Off, false, api.Owner{Name: "none", Evidence: "switched off in the configuration"}},
		"forbidden, beside a kubelet": {config.Off, true, kubelet},
	} {
		t.Run(name, func(t *testing.T) {
			for _, j := range jobs {
				switches := map[job]config.Switch{}
				for _, other := range jobs {
					switches[other] = config.Auto
				}
				switches[j] = c.set
				seen := map[job]api.Owner{}
				if c.there {
					seen[j] = kubelet
				}
				got := decideOwners(switches, seen)
				if got[j] != c.want {
					t.Errorf("decideOwners()[%s] = %+v, want %+v", j, got[j], c.want)
				}
				if len(got) != len(jobs) {
					t.Errorf("decideOwners() = %v, want an owner for each of %v", got, jobs)
				}
				for _, other := range jobs {
					if other != j && got[other].Name != api.OwnerHostler {
						t.Errorf("decideOwners()[%s] = %+v, want it untouched by %s", other, got[other], j)
					}
				}
			}
		})
	}
}

func TestOwnersTellWhenTheyChange(t *testing.T) {
	cfg := config.Default()
	cfg.ImageGC.Enabled = config.Off
	seen := map[job]api.Owner{}
	o := newOwners(cfg, func(context.Context) map[job]api.Owner { return seen })
	if mine, _, _ := o.mine(jobLease); mine {
		t.Error("mine() before the first look = true, want nothing to be touched yet")
	}
	if !o.refresh(t.Context()) || o.refresh(t.Context()) {
		t.Error("refresh() = want true at first, then false as long as nothing changes")
	}
	mine, _, changed := o.mine(jobLease)
	if imageGC, owner, _ := o.mine(jobImageGC); !mine || imageGC || owner.Name != api.OwnerNone {
		t.Errorf("mine() = %v for the lease, %v for imageGC (%+v), want the first alone", mine, imageGC, owner)
	}
	select {
	case <-changed:
		t.Error("the channel is closed although nothing changed")
	default:
	}
	seen[jobLease] = api.Owner{Name: api.OwnerKubelet, Evidence: "here"}
	if !o.refresh(t.Context()) {
		t.Error("refresh() with a kubelet = false, want true")
	}
	<-changed
	if mine, owner, _ := o.mine(jobLease); mine || owner.Name != api.OwnerKubelet {
		t.Errorf("mine() beside a kubelet = %v, %+v, want the kubelet's", mine, owner)
	}
	if all := o.all(); len(all) != len(jobs) || all["lease"].Name != api.OwnerKubelet || all["node"].Name != api.OwnerHostler {
		t.Errorf("all() = %v, want every job with its owner", all)
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
			got, found := findKubelet(procTree(t, c.ours, c.processes...))
			if got != c.want || found != (c.want != "") {
				t.Errorf("findKubelet() = %q, %v, want %q", got, found, c.want)
			}
		})
	}
	if got, found := findKubelet(filepath.Join(t.TempDir(), "none")); found || got != "" {
		t.Errorf("findKubelet() without /proc = %q, %v, want none found", got, found)
	}
}

func TestEvidenceIsForPeople(t *testing.T) {
	for _, owner := range decideOwners(newOwners(config.Default(), nil).switches, nil) {
		if strings.TrimSpace(owner.Evidence) == "" {
			t.Errorf("owner %+v comes without evidence", owner)
		}
	}
}

// A kubelet is restarted and upgraded: a minute without its process hands nobody
// its jobs. A lock that is gone guards nothing, so that job is free at once.
func TestJobsAreTakenOverWhenTheirOwnerIsGoneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kubelet := api.Owner{Name: api.OwnerKubelet, Evidence: "seen"}
		seen := map[job]api.Owner{jobNode: kubelet, jobShutdown: kubelet}
		o := newOwners(config.Default(), func(context.Context) map[job]api.Owner { return maps.Clone(seen) })
		o.refresh(t.Context())
		for _, step := range []struct {
			what           string
			seen           map[job]api.Owner
			pass           time.Duration
			node, shutdown bool
		}{
			{"while it is there", seen, 0, false, false},
			{"when it is missed first", map[job]api.Owner{}, 30 * time.Second, false, true},
			{"when it is back", seen, 20 * time.Second, false, false},
			{"just before it counts as gone", map[job]api.Owner{}, ownerGone - time.Second, false, true},
			{"when it has been gone for a minute", map[job]api.Owner{}, time.Second, true, true},
		} {
			seen = step.seen
			time.Sleep(step.pass)
			o.refresh(t.Context())
			node, _, _ := o.mine(jobNode)
			shutdown, _, _ := o.mine(jobShutdown)
			if node != step.node || shutdown != step.shutdown {
				t.Errorf("%s: mine(node) = %v, mine(shutdown) = %v, want %v and %v", step.what, node, shutdown, step.node, step.shutdown)
			}
		}
	})
}

// What failed before the job was lost is not tried again, and so would never be
// found to work.
func TestAKubeletIsSeenWhoeverHasItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		others := map[job]api.Owner{jobContainerGC: {Name: api.OwnerKubelet, Evidence: "process kubelet"}}
		cfg := config.Default()
		cfg.ContainerGC.Enabled = config.On
		o := newOwners(cfg, func(context.Context) map[job]api.Owner { return maps.Clone(others) })
		if o.seen(jobContainerGC) {
			t.Errorf("seen() = true before anybody looked")
		}
		o.refresh(t.Context())
		if mine, _, _ := o.mine(jobContainerGC); !mine || !o.seen(jobContainerGC) || o.seen(jobLease) {
			t.Errorf("mine() = %v, seen() = %v, want the job hostler's and the kubelet seen, for that job alone", mine, o.seen(jobContainerGC))
		}
		delete(others, jobContainerGC)
		time.Sleep(3 * ownerGone)
		o.refresh(t.Context())
		if o.seen(jobContainerGC) {
			t.Errorf("seen() = true long after the kubelet went")
		}
	})
}

func TestTroubleWithALostJobIsForgotten(t *testing.T) {
	a := newRig(t).build(t)
	a.reporter.lastError = errors.New("disk full")
	seen := map[job]api.Owner{}
	a.owners = newOwners(config.Default(), func(context.Context) map[job]api.Owner { return seen })
	for _, step := range []struct {
		what, want string
		seen       map[job]api.Owner
	}{
		{"alone on the host", "disk full", map[job]api.Owner{}},
		{"beside a kubelet", "", map[job]api.Owner{jobNode: {Name: api.OwnerKubelet}}},
	} {
		seen = step.seen
		a.owners.refresh(t.Context())
		s, err := a.Status(t.Context())
		if err != nil || s.ControlPlane.LastError != step.want {
			t.Errorf("%s: Status() has control plane error %q, %v, want %q", step.what, s.ControlPlane.LastError, err, step.want)
		}
	}
}
