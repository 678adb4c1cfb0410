package maintenance_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/status/report"
)

func TestACordonReportsWhereItIsStored(t *testing.T) {
	for name, c := range map[string]struct {
		registered bool
		want       string
	}{
		"the control plane hangs":        {true, "once it answers: context deadline exceeded"},
		"the node is not registered yet": {false, "once it answers: the node is not registered yet"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.over(&hanging{d.client, 1})
				if c.registered {
					d.register(t)
				}
				got, err := maintenance.New(d.Options).Cordon(t.Context(), true)
				if err != nil || !got.Changed || !got.Pending || !strings.HasPrefix(got.Message, "saved on this host") || !strings.HasSuffix(got.Message, c.want) {
					t.Errorf("Cordon() = %+v, %v, want it kept on the disk, and not delivered: %s", got, err, c.want)
				}
			})
		})
	}
}

func TestARepeatedCordonKeepsTheFirstUser(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.register(t)
		began := time.Now()
		if _, err := d.Reporter.Cordon(t.Context(), report.Decision{Unschedulable: true, By: "alice", At: began}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		got, err := maintenance.New(d.Options).Cordon(t.Context(), true)
		if err != nil || got.Changed || got.By != "alice" || !got.At.Equal(began) {
			t.Errorf("Cordon() an hour later = %+v, %v, want that alice did it before", got, err)
		}
		if kept := d.Reporter.Decided(); kept.By != "alice" || !kept.At.Equal(began) || !kept.Delivered {
			t.Errorf("Decided() = %+v, want alice's word", kept)
		}
	})
}

func TestAnImpossibleCordonIsRejectedWithAHint(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*desk)
		want    []string
	}{
		"the control plane cannot": {func(d *desk) { d.over(plain{d.client}) }, []string{"control plane fake: this control plane cannot cordon nodes", "spec.unschedulable"}},
		"the Node is a kubelet's": {func(d *desk) {
			d.Owners = ownedBy(owner.Auto, &owner.Owner{Name: owner.Kubelet, Evidence: "process kubelet, pid 7"})
		}, []string{"process kubelet, pid 7", "kubectl cordon node-a"}},
		"there is no Node": {func(d *desk) {
			d.Owners = ownedBy(owner.Off, nil)
		}, []string{"switched off in the configuration", "node.enabled: false"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.register(t)
				c.prepare(d)
				_, err := maintenance.New(d.Options).Cordon(t.Context(), true)
				var reported *hint.Error
				if !errors.As(err, &reported) {
					t.Fatalf("Cordon() = %v, want an error with a hint", err)
				}
				for _, want := range c.want {
					if !strings.Contains(reported.Error(), want) {
						t.Errorf("Cordon() = %v, want %q in it", reported, want)
					}
				}
				if n := d.stored(t); n.Spec.Unschedulable || d.Reporter.Decided() != nil {
					t.Errorf("the Node is %+v, and kept is %+v, want nothing done", n.Spec, d.Reporter.Decided())
				}
			})
		})
	}
}

func TestACordonIsAnEventThatNamesThePerson(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		drainer := maintenance.New(d.Options)
		d.register(t)
		for _, want := range []bool{true, true, false} {
			if _, err := drainer.Cordon(t.Context(), want); err != nil {
				t.Fatal(err)
			}
		}
		var reported []string
		for _, e := range d.Recorder.Queued() {
			if strings.HasSuffix(e.Reason, "Schedulable") {
				reported = append(reported, e.Reason+": "+e.Message)
			}
		}
		want := "NodeNotSchedulable: cordoned by unknown user with `hostler cordon`|NodeSchedulable: uncordoned by unknown user with `hostler uncordon`"
		if got := strings.Join(reported, "|"); got != want {
			t.Errorf("Events = %q, want %q", got, want)
		}
	})
}
