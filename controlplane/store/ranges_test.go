package store_test

import (
	"reflect"
	"testing"

	"hostler.io/hostler/controlplane/store"
)

// TestRangesOfAPosition has the ranges of kinds: all objects, those that people may write, and those of one host, too.
func TestRangesOfAPosition(t *testing.T) {
	for name, c := range map[string]struct {
		kind              store.Kind
		all, people, host []store.Range
	}{
		"Nodes":         {store.Nodes, []store.Range{{"nodes/", "nodes0"}}, nil, nil},
		"Leases":        {store.Leases, []store.Range{{"leases/", "leases0"}}, nil, nil},
		"Events":        {store.Events, []store.Range{{"events/", "events0"}}, []store.Range{}, []store.Range{{"events/h/", "events/h0"}}},
		"pods":          {store.Below("pods"), []store.Range{{"objects/pods/", "objects/pods0"}}, []store.Range{}, []store.Range{{"objects/pods/h/", "objects/pods/h0"}}},
		"other objects": {store.Below("tickets"), []store.Range{{"objects/tickets/", "objects/tickets0"}}, []store.Range{{"objects/tickets/", "objects/tickets0"}}, []store.Range{{"objects/tickets/", "objects/tickets0"}}},
		"objects": {
			store.Objects,
			[]store.Range{{"objects/", "objects0"}},
			[]store.Range{{"objects/", "objects/pods/"}, {"objects/pods0", "objects0"}},
			[]store.Range{{"objects/", "objects/pods/"}, {"objects/pods/h/", "objects/pods/h0"}, {"objects/pods0", "objects0"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, try := range []struct {
				position store.Position
				want     []store.Range
			}{
				{store.Position{Kind: c.kind}, c.all},
				{store.Position{Kind: c.kind, ByPeople: true}, c.people},
				{store.Position{Kind: c.kind, ByPeople: true, Host: "h"}, c.host},
			} {
				if got := try.position.Ranges(); !reflect.DeepEqual(got, try.want) {
					t.Errorf("Ranges() with ByPeople %v of host %q = %v, want %v", try.position.ByPeople, try.position.Host, got, try.want)
				}
			}
		})
	}
}
