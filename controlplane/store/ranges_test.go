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
		"Nodes":         {store.Nodes, []store.Range{{Begin: "nodes/", End: "nodes0", Hosts: true}}, nil, nil},
		"Leases":        {store.Leases, []store.Range{{Begin: "leases/", End: "leases0", Hosts: true}}, nil, nil},
		"Events":        {store.Events, []store.Range{{Begin: "events/", End: "events0", Hosts: true}}, []store.Range{}, []store.Range{{Begin: "events/h/", End: "events/h0", Hosts: true}}},
		"pods":          {store.Below("pods"), []store.Range{{Begin: "objects/pods/", End: "objects/pods0", Hosts: true}}, []store.Range{}, []store.Range{{Begin: "objects/pods/h/", End: "objects/pods/h0", Hosts: true}}},
		"other objects": {store.Below("tickets"), []store.Range{{Begin: "objects/tickets/", End: "objects/tickets0"}}, []store.Range{{Begin: "objects/tickets/", End: "objects/tickets0"}}, []store.Range{{Begin: "objects/tickets/", End: "objects/tickets0"}}},
		"objects": {
			store.Objects,
			[]store.Range{{Begin: "objects/", End: "objects0", Hosts: true}},
			[]store.Range{{Begin: "objects/", End: "objects/pods/"}, {Begin: "objects/pods0", End: "objects0"}},
			[]store.Range{{Begin: "objects/", End: "objects/pods/"}, {Begin: "objects/pods/h/", End: "objects/pods/h0", Hosts: true}, {Begin: "objects/pods0", End: "objects0"}},
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
