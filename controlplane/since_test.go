package controlplane_test

import (
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
)

func TestALeaseThatWasNeverRenewedIsAsOldAsTheTries(t *testing.T) {
	began := time.Now()
	for name, c := range map[string]struct {
		stats controlplane.LeaseStats
		want  time.Time
	}{
		"of another owner":               {controlplane.LeaseStats{LastRenewed: began}, time.Time{}},
		"never renewed":                  {controlplane.LeaseStats{Running: began}, began},
		"renewed":                        {controlplane.LeaseStats{Running: began, LastRenewed: began.Add(time.Minute)}, began.Add(time.Minute)},
		"taken up again after a pause":   {controlplane.LeaseStats{Running: began, LastRenewed: began.Add(-time.Hour)}, began},
		"neither tried nor ever renewed": {},
	} {
		if got := c.stats.Since(); !got.Equal(c.want) {
			t.Errorf("a lease %s counts from %v, want %v", name, got, c.want)
		}
	}
}
