package agent

import (
	"os"
	"os/user"
	"path/filepath"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/status"
)

func TestChecksAreKnownBeforeTheyHaveRun(t *testing.T) {
	r := newRig(t)
	r.cfg.Conditions.Directory = filepath.Join(folder(t), "conditions.d") // not in /tmp itself, because everyone can write there
	if err := os.Mkdir(r.cfg.Conditions.Directory, 0o755); err != nil {
		t.Fatal(err)
	}
	me, err := user.Current() // the host may lack hostler-exec
	if err != nil {
		t.Fatal(err)
	}
	header := "#!/bin/sh\n# hostler:\n#   user: " + me.Username + "\n"
	for name, text := range map[string]string{"own": header, "foreign": header + "#   type: example.com/A\n", "faulty": header + "#   x: y\n"} {
		if err := os.WriteFile(r.cfg.Conditions.Directory+"/"+name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := r.build(t)
	a.owners.Refresh(t.Context())
	c := checksOf(t, a)
	if len(c.Checks) != 2 || len(c.Faults) != 1 || c.Checks[0].LocalOnly || c.Checks[0].Answer != status.NotRunYet {
		t.Errorf("Status() = %+v, want two checks that were not asked, and a fault", c)
	}
	if facts := a.host.facts.Now(t.Context(), nil); len(facts.Custom) != 2 {
		t.Errorf("Now() = checks %+v, want both", facts.Custom)
	}
	owner.OpenPast(owner.PastOptions{Notes: a.kept.notes, Node: nodeName, Shared: true, Log: discard()}).NodeShows(true)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	r.cfg.Node.Enabled = config.Auto
	a = r.build(t)
	a.owners.Refresh(t.Context())
	if c := checksOf(t, a); !c.Checks[0].LocalOnly || c.Checks[1].LocalOnly {
		t.Errorf("Status() = %+v, want that of another domain shown here only", c.Checks)
	}
}

// checksOf returns the custom checks in the status.
func checksOf(t *testing.T, a *Agent) api.CustomConditions {
	t.Helper()
	s, err := a.serving.backend.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.CustomConditions
}
