package report

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/shutdown"
)

// disk is the part of the shelf that survives a power cut.
type disk struct {
	shelf *shelf

	mu     sync.Mutex
	values map[string][]byte // guarded by mu
}

func (d *disk) Flush() error {
	values, _ := d.shelf.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values = values
	return nil
}

func (d *disk) has(key, text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(string(d.values[key]), text)
}

// atWrite calls do just before a status is written.
type atWrite struct {
	*controlplanetest.Fake
	do func()
}

func (c atWrite) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	c.do()
	return c.Fake.UpdateStatus(ctx, node)
}

func TestTheReportIsOnDiskWhileTheControlPlaneIsSlow(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		disk := &disk{shelf: d.kept}
		d.o.Flush = disk.Flush
		asked := 0
		d.o.Client = atWrite{d.client, func() {
			asked++
			time.Sleep(2 * slowAnswer)
			if !disk.has(keyFinal, "all pods stopped") || !disk.has(keyEvents, "the last of them") {
				t.Errorf("on the disk is %s, want the final status and the Events", maps.Clone(disk.values))
			}
		}}
		d.o.Recorder.Record(controlplane.NodeReference(nodeName), corev1.EventTypeNormal, "Tick", "the last of them")
		released := drainingStatus()
		released.State, released.Reason = shutdown.Released, "all pods stopped"
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_ = ShutdownReporter{d.Reporter, d.bootEvents(nil), disk.Flush}.ReportShutdown(ctx, released) // nobody publishes the Event
		if asked != 1 {
			t.Errorf("the control plane was asked %d times, want once", asked)
		}
		if disk.has(keyFinal, "all pods stopped") || !disk.has(keyEvents, "the last of them") {
			t.Errorf("in the end on the disk is %s, want the Event, and no last word that was taken", disk.values)
		}
	})
}

func TestADiskThatHangsDoesNotTakeTheControlPlanesTime(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		if err := d.once(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		stuck := make(chan struct{})
		defer close(stuck)
		d.o.Flush = func() error { <-stuck; return nil }
		d.client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Delay: time.Second})
		released := drainingStatus()
		released.State = shutdown.Released
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		began := time.Now()
		_ = ShutdownReporter{d.Reporter, d.bootEvents(nil), func() error { return nil }}.ReportShutdown(ctx, released)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("ReportShutdown() took %v, want at most three quarters of the time", took)
		}
		if c := ready(d.stored(t)); c.Status != corev1.ConditionFalse {
			t.Errorf("Ready = %+v, want it written to the control plane", c)
		}
	})
}
