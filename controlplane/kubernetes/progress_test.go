package kubernetes_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
)

// confirmations is a Follower that records what is confirmed.
type confirmations struct {
	reports
	at []time.Time
}

func (c *confirmations) Confirmed(at time.Time) { c.at = append(c.at, at) }

// TestASilentWatchConfirmsNothing lets watches of 10 s follow each other, as an API server ends them. The version of the kind is the
// number of seconds since the list.
func TestASilentWatchConfirmsNothing(t *testing.T) {
	const each = 10 * time.Second
	for name, c := range map[string]struct {
		bookmark func(watch int) int // version that a watch reports two seconds before its end; 0 for none
		silent   time.Duration       // since when; 0 for never
	}{
		"bookmarks":                         {func(n int) int { return 10*n + 8 }, 0},
		"one bookmark is missing":           {func(n int) int { return (10*n + 8) * min(1, max(n-3, 3-n)) }, 0},
		"silent":                            {func(int) int { return 0 }, time.Nanosecond},
		"bookmarks of an old version":       {func(int) int { return 1 }, time.Nanosecond},
		"silent after a while":              {func(n int) int { return (10*n + 8) * max(0, min(1, 6-n)) }, 58 * time.Second},
		"bookmarks of an old version later": {func(n int) int { return min(10*n+8, 58) }, 58 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, to := time.Now(), &confirmations{}
				var watches []<-chan watch.Event
				for n := range 30 {
					changes := make(chan watch.Event, 1)
					watches = append(watches, changes)
					go func() {
						time.Sleep(time.Duration(n)*each + 8*time.Second)
						if version := c.bookmark(n); version != 0 {
							changes <- watch.Event{Type: watch.Bookmark, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(version)}}}
						}
						time.Sleep(2 * time.Second)
						close(changes)
					}()
				}
				again, err := kubernetes.Watches(t.Context(), to, func(context.Context) (string, error) {
					return fmt.Sprint(1 + int(time.Since(start)/time.Second)), nil
				}, watches...)
				if err != nil || again != (c.silent != 0) {
					t.Errorf("run() = %t, %v, want a list after a silence only", again, err)
				}
				if ended := time.Since(start); again && ended > c.silent+27*time.Second {
					t.Errorf("the list follows %v after the silence began, want at most 27s, before it counts as silent", ended-c.silent)
				}
				for _, at := range to.at[1:] { // the first is that of the list
					if c.silent != 0 && at.Sub(start) >= c.silent {
						t.Errorf("confirmed up to %v, silent since %v", at.Sub(start), c.silent)
					}
				}
				if last := slices.MaxFunc(to.at, time.Time.Compare); c.silent == 0 && time.Since(last) > 30*time.Second {
					t.Errorf("confirmed up to %v at the end, want to be up to date", last.Sub(start))
				}
				time.Sleep(30 * each) // until all watches are closed
			})
		})
	}
}

// TestAListFollowsATimeWithoutAnswers has a store that does not answer for a while, such as to a process that was suspended. It may
// have been restored meanwhile, and be at a later version again.
func TestAListFollowsATimeWithoutAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration
		want bool
	}{
		"a short time": {15 * time.Second, false},
		"a long time":  {25 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, changes := time.Now(), make(chan watch.Event)
				version := func() string { return fmt.Sprint(1 + int(time.Since(start)/time.Second)) }
				go func() {
					for range 60 {
						time.Sleep(time.Second)
						changes <- watch.Event{Type: watch.Bookmark, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version()}}}
					}
					close(changes)
				}()
				again, err := kubernetes.Watches(t.Context(), &confirmations{}, func(context.Context) (string, error) {
					if passed := time.Since(start); passed > 20*time.Second && passed < 20*time.Second+c.away {
						return "", controlplane.ErrUnavailable
					}
					return version(), nil
				}, changes)
				if again != c.want || err != nil {
					t.Errorf("run() after %v without answers = %t, %v, want a list: %t", c.away, again, err, c.want)
				}
				go func() {
					for range changes { // until it is closed
					}
				}()
				time.Sleep(time.Minute)
			})
		})
	}
}
