package report

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestTheStoredTaintsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		var latest []corev1.Taint
		reported := false
		d.o.Taints = func(taints []corev1.Taint) {
			d.mu.Lock()
			defer d.mu.Unlock()
			latest, reported = taints, true
		}
		want := func(when string, keys ...string) {
			t.Helper()
			d.mu.Lock()
			defer d.mu.Unlock()
			var got []string
			for _, taint := range latest {
				got = append(got, taint.Key)
			}
			if !reported || !slices.Equal(got, keys) {
				t.Errorf("%s: taints = %q, reported: %v, want %q", when, got, reported, keys)
			}
		}
		d.start(t)
		d.watch(t)
		want("at the start")
		d.edit(t, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoExecute}}
		})
		synctest.Wait()
		want("with a person's taint", "theirs")
		d.edit(t, func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute})
		})
		synctest.Wait()
		want("with one of a controller, too", "theirs", corev1.TaintNodeUnreachable)
		d.edit(t, func(n *corev1.Node) { n.Spec.Taints = nil })
		synctest.Wait()
		want("without them")
		d.edit(t, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoExecute}}
		})
		if err := d.Leave(t.Context(), "a person"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want("after the Node was deleted")
	})
}
