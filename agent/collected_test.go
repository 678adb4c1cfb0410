package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/runtime"
)

// ranFor waits until a collector's last run had this trigger.
func ranFor(t *testing.T, c interface{ Last() (runs.Report, bool) }, why string) runs.Report {
	t.Helper()
	var last runs.Report
	for end := time.Now().Add(bound); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var ran bool
		if last, ran = c.Last(); ran && last.Trigger == why {
			return last
		}
	}
	t.Fatalf("last run = %+v, want one for %s", last, why)
	return last
}

func TestDiskPressureStartsCollectionsAtOnce(t *testing.T) {
	a := newRig(t).build(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- a.gc.images.Run(ctx) }()
	go func() { ended <- a.gc.dead.Run(ctx) }()
	ranFor(t, a.gc.images, "start")
	ranFor(t, a.gc.dead, "start")

	pressure := func(kind corev1.NodeConditionType, to corev1.ConditionStatus) {
		a.transitioned(corev1.NodeCondition{Type: kind, Status: to})
	}
	pressure(corev1.NodeMemoryPressure, corev1.ConditionTrue)
	pressure(corev1.NodeDiskPressure, corev1.ConditionTrue)
	first := ranFor(t, a.gc.images, "DiskPressure")
	ranFor(t, a.gc.dead, "DiskPressure")
	pressure(corev1.NodeDiskPressure, corev1.ConditionFalse)
	pressure(corev1.NodeDiskPressure, corev1.ConditionTrue)
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		if last := ranFor(t, a.gc.images, "DiskPressure"); last.StartedAt.After(first.StartedAt) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no run for a pressure that is back, want one more")
		}
	}
	cancel()
	<-ended
	<-ended
}

func TestAFailedCollectionIsRepeatedWhenTheRuntimeIsReady(t *testing.T) {
	a := newRig(t).build(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.gc.images.Run(ctx) }()
	if last := ranFor(t, a.gc.images, "start"); len(last.Errors) == 0 {
		t.Fatalf("first run = %+v, want the runtime missed", last)
	}
	down, up := runtime.Health{}, runtime.Health{}
	up.Ready = true
	a.runtimesChanged([]runtime.Health{up}, []runtime.Health{down})
	a.runtimesChanged([]runtime.Health{down}, []runtime.Health{up})
	ranFor(t, a.gc.images, "RuntimeReady")
	cancel()
	<-ended
}

func TestPastCollectionsAreReportedAfterARestart(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	a.collected(a.gc.imageLoop, "images", runs.Report{
		StartedAt: time.Now(), Trigger: "interval", FreedBytes: 7,
		Removed: []runs.Removal{{Kind: runs.KindImage, ID: "i", Names: []string{"i"}}},
	})
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	past, err := r.build(t).serving.backend.CollectHistory(t.Context())
	if err != nil || len(past.Runs) != 1 || past.Runs[0].Removed != 1 || past.Runs[0].FreedBytes != 7 {
		t.Errorf("CollectHistory() after a restart = %+v, %v, want the one run", past, err)
	}
}

// The pressure may be over, and `hostler status` should not show an old figure for long.
func TestACollectionThatRemovesRequestsACheckOfTheHost(t *testing.T) {
	a := newRig(t).build(t)
	for removed, want := range []bool{0: false, 1: true} {
		select {
		case <-a.changed: // requested by the start
		default:
		}
		a.collected(a.gc.imageLoop, "images", runs.Report{StartedAt: time.Now(), Removed: make([]runs.Removal, removed)})
		requested := false
		select {
		case <-a.changed:
			requested = true
		default:
		}
		if requested != want {
			t.Errorf("a run that removed %d images requested a check: %t, want %t", removed, requested, want)
		}
	}
}

func TestEventsOfCollectionsNameTheFilesystem(t *testing.T) {
	a := newRig(t).build(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.plane.recorder.Run(ctx) }()
	a.collected(a.gc.imageLoop, "images", runs.Report{
		StartedAt: time.Now(), Trigger: "interval", FreedBytes: 7, RequestedBytes: 9, Warnings: []string{"too little"}, Filesystems: []string{"/srv (/dev/sdb1)"},
		Removed: []runs.Removal{{Kind: runs.KindImage, ID: "i", Names: []string{"i"}}},
	})
	var events []corev1.Event
	for end := time.Now().Add(bound); len(events) < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		events, _ = a.plane.Client.(*embedded.Client).Events(ctx)
	}
	for _, e := range events {
		if !strings.Contains(e.Message, " on /srv (/dev/sdb1)") {
			t.Errorf("Event %s says %q, want the filesystem named", e.Reason, e.Message)
		}
	}
	if len(events) != 2 {
		t.Errorf("Events() = %+v, want two", events)
	}
	cancel()
	<-ended
}

// The command reports errors of a requested run. The health of the loop depends only on its own
// runs.
func TestAFailedRequestedRunIsNoFailureOfTheLoop(t *testing.T) {
	a := newRig(t).build(t)
	ended := func(trigger string, err error) bool {
		r := runs.NewReport(trigger)
		if err != nil {
			r.Fail(runs.KindImage, err)
		}
		a.collected(a.gc.imageLoop, "images", *r)
		return a.gc.imageLoop.Health(time.Now()).Healthy
	}
	failed := errors.New("remove image web: in use")
	for _, step := range []struct {
		trigger string
		err     error
		want    bool
	}{
		{"interval", nil, true},
		{runs.TriggerRequest, failed, true},
		{"interval", failed, false},
		{runs.TriggerRequest, failed, false},
		{runs.TriggerRequest, nil, true},
	} {
		if got := ended(step.trigger, step.err); got != step.want {
			t.Errorf("after a run by %s that ended with %v: healthy = %t, want %t", step.trigger, step.err, got, step.want)
		}
	}
}
