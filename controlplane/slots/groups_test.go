package slots_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
)

// requestSlot requests a slot of group default.
func requestSlot(t *testing.T, g *slots.Groups, id string) (wait *slots.Wait, err error) {
	t.Helper()
	_, err = g.Change(t.Context(), "default", store.Term{}, func(s *slots.State) error {
		wait = s.Ask(client(id), slots.Policy{Slots: 1}, nil, noon)
		return nil
	})
	return wait, err
}

// TestWhereAGroupIsStored checks the documented places: slots/GROUP on etcd, an annotation of a Lease on
// Kubernetes.
func TestWhereAGroupIsStored(t *testing.T) {
	const want = `{"holders":[{"id":"x","by":"fleetlock","number":1,"since":"2026-11-27T12:00:00Z"}],"waiting":[{"id":"y","by":"fleetlock","number":2,"since":"2026-11-27T12:00:00Z","asked":"2026-11-27T12:00:00Z"}],"releases":[],"requests":2,"turn":0}`
	lease := store.Leases
	lease.Namespace = "hostler-system"
	for name, c := range map[string]struct {
		etcd bool
		read func(s *memory.Store) (string, error)
	}{
		"etcd": {true, func(s *memory.Store) (string, error) {
			record := store.Kind{Name: store.Slots, GVK: metav1.SchemeGroupVersion.WithKind("SlotGroup"), New: func() store.Object { return &slots.Record{} }}
			record.GVK.Group = "hostler.io"
			o, err := s.Get(t.Context(), record, "default")
			if err != nil {
				return "", err
			}
			text, err := json.Marshal(o.(*slots.Record).State)
			return string(text), err
		}},
		"Kubernetes": {false, func(s *memory.Store) (string, error) {
			o, err := s.Get(t.Context(), lease, "hostler-slots-default")
			if err != nil {
				return "", err
			}
			return o.GetAnnotations()["hostler.io/slots"], nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New(memory.Options{EndsLeases: c.etcd})
			g := slots.NewGroups(s, "hostler-system")
			for _, id := range []string{"x", "y"} {
				if _, err := requestSlot(t, g, id); err != nil {
					t.Fatal(err)
				}
			}
			if state, err := g.Get(t.Context(), "default"); err != nil || state.Holder("x") == nil || state.Request("y") == nil {
				t.Errorf("Get() = %+v, %v, want that x holds a slot, and y waits", state, err)
			}
			if got, err := c.read(s); err != nil || strings.ReplaceAll(got, "\n", "") != want {
				t.Errorf("stored = %s, %v, want %s", got, err, want)
			}
			writes := s.Calls(memory.Create) + s.Calls(memory.Update)
			if _, err := g.Change(t.Context(), "other", store.Term{}, func(s *slots.State) error { s.GiveBack("x", noon); return nil }); err != nil {
				t.Error(err)
			}
			if s.Calls(memory.Create)+s.Calls(memory.Update) != writes+1 {
				t.Error("a group is stored without need")
			}
		})
	}
}

func TestACustomKindNamedSlotsHasAnotherFolder(t *testing.T) {
	if got := store.Below(store.Slots).Folder(); got != "objects/slots/" {
		t.Errorf("folder = %s, want objects/slots/", got)
	}
}

// TestInvalidDataIsNotReplaced stores an invalid value, as a person might.
func TestInvalidDataIsNotReplaced(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	s.PutRaw(store.Kind{Name: store.Slots, GVK: metav1.SchemeGroupVersion.WithKind("x")}, "default", []byte("{"))
	if _, err := requestSlot(t, slots.NewGroups(s, ""), "x"); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("Change() = %v, want an error that is %q", err, store.ErrUnreadable)
	}
	s = memory.New(memory.Options{})
	s.Put(store.Leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "hostler-slots-default", Annotations: map[string]string{slots.Annotation: "{"}}})
	if _, err := slots.NewGroups(s, "").Get(t.Context(), "default"); !errors.Is(err, store.ErrUnreadable) {
		t.Errorf("Get() = %v, want an error that is %q", err, store.ErrUnreadable)
	}
	if _, err := requestSlot(t, slots.NewGroups(s, ""), "x"); !errors.Is(err, store.ErrUnreadable) || !strings.Contains(err.Error(), "fix or delete it") {
		t.Errorf("Change() = %v, want an error that is %q", err, store.ErrUnreadable)
	}
}

// TestAnotherServerGivesASlotOfAnotherGroup has a server that does not know yet that a host holds a slot of another
// group. The stores compare the other group in the write.
func TestAnotherServerGivesASlotOfAnotherGroup(t *testing.T) {
	for name, o := range map[string]memory.Options{"as etcd": {EndsLeases: true}, "as Kubernetes": {}} {
		t.Run(name, func(t *testing.T) {
			s := memory.New(o)
			first, second := slots.NewGroups(s, "hostler-system"), slots.NewGroups(s, "hostler-system")
			gives := func(g *slots.Groups, group, other string) (granted int) {
				t.Helper()
				if _, err := g.Give(t.Context(), group, []string{other}, store.Term{}, func(s *slots.State) error {
					s.UpdateQueue(agents("a1=1"), slots.Policy{}, nil, noon)
					granted = len(s.Grant(slots.Policy{Group: group, Slots: 1}, fleet("a1"), noon))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				return granted
			}
			if _, err := first.Get(t.Context(), "b"); err != nil { // there is no such record yet
				t.Fatal(err)
			}
			if gives(second, "b", "a") != 1 {
				t.Fatal("the second server gives no slot of b")
			}
			if gives(first, "a", "b") != 0 {
				t.Error("the first server gives a second slot, of a")
			}
			reads := s.Calls(memory.Get)
			if gives(first, "a", "b"); s.Calls(memory.Get) != reads {
				t.Errorf("%d reads while nothing has changed, want none", s.Calls(memory.Get)-reads)
			}
			free := func(s *slots.State) error { s.Free(*s.Holder("a1"), slots.GivenBack, "agent", noon); return nil }
			if _, err := second.Change(t.Context(), "b", store.Term{}, free); err != nil {
				t.Fatal(err)
			}
			if _, err := first.Get(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			if gives(first, "a", "b") != 1 {
				t.Error("the first server gives no slot once that of b is free")
			}
		})
	}
}

// TestAGroupIsReadAgainAfterAnError has a server that could not read another group. Meanwhile, a host gets a slot of it.
func TestAGroupIsReadAgainAfterAnError(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	g := slots.NewGroups(s, "")
	give := func(g *slots.Groups, group string, others ...string) (granted []slots.Client) {
		t.Helper()
		if _, err := g.Give(t.Context(), group, others, store.Term{}, func(s *slots.State) error {
			s.UpdateQueue(agents("a1=1"), slots.Policy{}, nil, noon)
			granted = s.Grant(slots.Policy{Group: group, Slots: 1}, fleet("a1"), noon)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return granted
	}
	s.Inject(memory.Get, memory.Fault{Err: controlplane.ErrUnavailable})
	if _, err := g.Get(t.Context(), "b"); err == nil {
		t.Fatal("Get() = nil, want an error")
	}
	s.Heal()
	if got := give(slots.NewGroups(s, ""), "b"); len(got) != 1 {
		t.Fatalf("the other server gives %v, want a slot", got)
	}
	if got := give(g, "a", "b"); len(got) != 0 {
		t.Errorf("Give() = %v, want no second slot", got)
	}
}
