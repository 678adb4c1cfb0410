package backend

import (
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/runtime"
)

func TestALogIsOfTheContainerThatWasMadeLast(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 11, 20, hour, 0, 0, 0, time.UTC) }
	pods := []runtime.Pod{
		{Namespace: "default", Name: "web", Containers: []runtime.Container{{ID: "new", Name: "main", CreatedAt: at(3)}, {ID: "old", Name: "main", CreatedAt: at(1)}, {ID: "side", Name: "sidecar", CreatedAt: at(4)}}},
		{Namespace: "default", Name: "web", Containers: []runtime.Container{{ID: "dead", Name: "main", CreatedAt: at(2)}}}, // an earlier container
		{Namespace: "other", Name: "web", Containers: []runtime.Container{{ID: "other", Name: "main", CreatedAt: at(5)}}},
		{Name: "lone", Containers: []runtime.Container{{ID: "lone", Name: "lone"}}},
	}
	for id, req := range map[string]api.LogRequest{
		"new":   {Namespace: "default", Pod: "web", Container: "main"},
		"side":  {Namespace: "default", Pod: "web", Container: "sidecar"},
		"other": {Namespace: "other", Pod: "web", Container: "main"},
		"lone":  {Pod: "lone", Container: "lone"},
	} {
		if c, found := named(pods, req); !found || c.ID != id {
			t.Errorf("named(%+v) = %q, %t, want %s", req, c.ID, found, id)
		}
	}
	for _, req := range []api.LogRequest{{Pod: "web", Container: "main"}, {Namespace: "default", Pod: "web"}, {Namespace: "default", Container: "main"}, {}} {
		if c, found := named(pods, req); found {
			t.Errorf("named(%+v) = %q, want none", req, c.ID)
		}
	}
}
