package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/internal/hint"
)

const own = "rack3-node07.example.net"

// fleetOf returns a control plane with these Nodes, each with a Lease.
func fleetOf(t *testing.T, names ...string) *controlplanetest.Fake {
	t.Helper()
	fake := controlplanetest.NewFake(nil)
	for _, name := range names {
		fake.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}}})
		lease, err := controlplane.NewLease(name, controlplane.Identity{MachineID: "m"}, 40*time.Second)
		if err == nil {
			_, err = fake.RenewLease(t.Context(), controlplane.Renew(lease, time.Now()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return fake
}

func TestAFleetIsReadWithItsLeases(t *testing.T) {
	reader := fleet.New(fleetOf(t, "a", own, "b"), own)
	var names []string
	before := time.Now()
	whose, err := reader.Fleet(t.Context(), func(m fleet.Member) error {
		if m.Lease == nil || m.Lease.Name != m.Node.Name || m.Node.ManagedFields != nil || m.ReadAt.Before(before) {
			t.Errorf("Fleet() returned %+v, want a Node without managed fields, its Lease, and the time of the read", m)
		}
		names = append(names, m.Node.Name)
		return nil
	})
	want := fleet.Fleet{Type: "fake", Endpoint: "memory", Node: own}
	if err != nil || whose != want || !slices.Equal(names, []string{"a", "b", own}) {
		t.Errorf("Fleet() = %+v, %v after %q, want %+v after all three", whose, err, names, want)
	}
	m, err := reader.Member(t.Context(), "b")
	if err != nil || m.ControlPlane != want || m.Node.Name != "b" || m.Lease.Name != "b" {
		t.Errorf("Member() = %+v, %v, want b with its lease", m, err)
	}
}

// silentOn is a control plane of a type that does not let hosts read others.
type silentOn struct {
	controlplane.Client
	kind string
}

func (s silentOn) Type() string { return s.kind }

// listing is silentOn with a list of hosts.
type listing struct {
	silentOn
	controlplane.FleetLister
}

func TestWhatCannotBeReadIsExplained(t *testing.T) {
	fake := fleetOf(t, own)
	named := func(kind string) controlplane.Client { return listing{silentOn{fake, kind}, fake} }
	for name, c := range map[string]struct {
		client controlplane.Client
		err    error
		hint   string
	}{
		"a node that may not see others":       {named("kubernetes"), controlplane.ErrForbidden, "docs/reference/kubernetes.md"},
		"a store that keeps them apart":        {named("etcd"), controlplane.ErrForbidden, "run these commands, or read the nodes with a user who may (/usr/share/doc/hostler/docs/reference/etcd.md); `hostler nodes " + own + "`"},
		"a control plane that is out of reach": {named("etcd"), controlplane.ErrUnavailable, "`hostler doctor`"},
		"a control plane that has no list":     {silentOn{fake, "plugin"}, nil, "tools of the control plane"},
	} {
		t.Run(name, func(t *testing.T) {
			fake.Inject(controlplanetest.Fleet, controlplanetest.Fault{Err: c.err, Times: 1})
			defer fake.Heal()
			_, err := fleet.New(c.client, own).Fleet(t.Context(), func(fleet.Member) error { return nil })
			reported, ok := errors.AsType[*hint.Error](err)
			if !ok || !strings.Contains(reported.Hint, c.hint) || !strings.Contains(reported.Message, "list the nodes of control plane "+c.client.Type()) {
				t.Errorf("Fleet() = %v, want what could not be listed, and the hint %q", err, c.hint)
			}
		})
	}
}

func TestThisHostIsReportedWhereOthersAreNot(t *testing.T) {
	fake := fleetOf(t, own)
	fake.Inject(controlplanetest.Fleet, controlplanetest.Fault{Err: controlplane.ErrForbidden})
	if m, err := fleet.New(fake, own).Member(t.Context(), own); err != nil || m.Node.Name != own {
		t.Errorf("Member() = %+v, %v, want this host", m, err)
	}
}

func TestAHostWithoutALeaseIsStillReported(t *testing.T) {
	fake := controlplanetest.NewFake(nil)
	fake.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if m, err := fleet.New(fake, own).Member(t.Context(), "a"); err != nil || m.Lease != nil {
		t.Errorf("Member() = %+v, %v, want it without a lease", m, err)
	}
}

func TestAWrongNameIsAnsweredWithThoseLikeIt(t *testing.T) {
	fake := fleetOf(t, own, "rack3-node08.example.net", "rack3-node17.example.net", "rack3-node27.example.net", "db-1", "db-2.example.net")
	for wrong, want := range map[string]string{
		"rack3-node07":             "did you mean " + own + " or ",
		"rack3-nod07.example.net":  "did you mean " + own + " or ",
		"rack3-node7":              "did you mean " + own + " or rack3-node17.example.net or rack3-node27.example.net?",
		"bd-1":                     "did you mean db-1?",
		"rack9-node44.example.net": "`hostler nodes` lists those that there are",
		"d":                        "did you mean db-1 or db-2.example.net or rack3-node07.example.net?",
	} {
		_, err := fleet.New(fake, own).Member(t.Context(), wrong)
		reported, ok := errors.AsType[*hint.Error](err)
		if !ok || !strings.HasPrefix(reported.Hint, want) || reported.Status != http.StatusNotFound || !strings.Contains(reported.Message, "there is no node "+wrong+" on control plane fake") {
			t.Errorf("Member(%q) = %v, want that there is none, and the hint %q", wrong, err, want)
		}
	}
	fake.Inject(controlplanetest.Fleet, controlplanetest.Fault{Err: controlplane.ErrForbidden})
	_, err := fleet.New(fake, own).Member(t.Context(), "rack3-node7")
	if reported, ok := errors.AsType[*hint.Error](err); !ok || reported.Hint != "check the name; `hostler nodes "+own+"` shows this host" {
		t.Errorf("Member() = %v without access to other Nodes, want the hint to check the name", err)
	}
	_, err = fleet.New(fake, own).Member(t.Context(), "Rack_3")
	if reported, ok := errors.AsType[*hint.Error](err); !ok || !strings.Contains(reported.Hint, "a-z, 0-9") {
		t.Errorf("Member() = %v of a name that cannot be, want what names are made of", err)
	}
}

// Parallel requests list the hosts one after the other.
func TestAFleetIsReadForOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fleetOf(t, own)
		fake.Inject(controlplanetest.Fleet, controlplanetest.Fault{Hang: true, Times: 1})
		reader := fleet.New(fake, own)
		list := func(ctx context.Context) error {
			_, err := reader.Fleet(ctx, func(fleet.Member) error { return nil })
			return err
		}
		first, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- list(first) }()
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := list(impatient); err == nil || fake.Calls(controlplanetest.Fleet) != 1 {
			t.Errorf("Fleet() = %v during another call, after %d requests, want it to wait", err, fake.Calls(controlplanetest.Fleet))
		}
		go func() { ended <- list(t.Context()) }()
		synctest.Wait()
		stop()
		if errs := fmt.Sprint(<-ended, <-ended); !strings.Contains(errs, "canceled") || !strings.Contains(errs, "<nil>") {
			t.Errorf("Fleet() ended with %s, want one cancelled, and the other successful", errs)
		}
	})
}
