package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

func TestWhatTheDoctorHearsOfChecks(t *testing.T) {
	fault := conditions.Fault{Path: "/c/broken", Problem: "may be written", Mend: "chmod"}
	facts := conditionFacts(api.CustomConditions{
		Directory: "/c",
		Faults:    []conditions.Fault{fault},
		Checks: []conditions.Check{
			{Path: "/c/broken", Answer: status.NotRun, Message: fault.String() + "; chmod"},
			{Path: "/c/fine", Answer: status.Passed},
			{Path: "/c/bad", Answer: status.Problem},
			{Path: "/c/new", Answer: status.NotAsked},
			{Path: "/c/closed", User: "nobody", Answer: status.NotRun, Message: "start /c/closed: permission denied"},
			{Path: "/c/slow", User: "root", Answer: status.TimedOut, Message: "the check did not end"},
			{Path: "/c/local", Type: "example.com/A", Answer: status.Passed, LocalOnly: true},
		},
	})
	if len(facts.Broken) != 1 || facts.Broken[0].Command != "chmod" || len(facts.Local) != 1 || facts.Number != 7 {
		t.Errorf("conditionFacts() = %+v, want one that is broken, one that is shown here only", facts)
	}
	if len(facts.Silent) != 2 || !strings.HasSuffix(facts.Silent[0].Command, "--no-new-privs /c/closed") || facts.Silent[1].Command != "run it by hand: /c/slow" {
		t.Errorf("conditionFacts() = %+v, want two that do not say anything, each with how to run it", facts.Silent)
	}
}

func TestChecksAreKnownBeforeTheyHaveRun(t *testing.T) {
	r := newRig(t)
	r.cfg.Conditions.Directory = filepath.Join(folder(t), "conditions.d") // not in /tmp itself, which is everybody's
	if err := os.Mkdir(r.cfg.Conditions.Directory, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"own": "#!/bin/sh\n", "foreign": "#!/bin/sh\n# hostler:\n#   type: example.com/A\n", "faulty": "#!/bin/sh\n# hostler:\n#   x: y\n"} {
		if err := os.WriteFile(r.cfg.Conditions.Directory+"/"+name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	a := r.build(t)
	a.owners.Refresh(t.Context())
	c := a.customConditions()
	if len(c.Checks) != 2 || len(c.Faults) != 1 || c.Checks[0].LocalOnly || c.Checks[0].Answer != status.NotAsked {
		t.Errorf("customConditions() = %+v, want two checks that were not asked, and a fault", c)
	}
	if facts := a.facts.Now(t.Context(), nil); len(facts.Custom) != 2 {
		t.Errorf("Now() = checks %+v, want both", facts.Custom)
	}
	if alone := conditionsAlone(r.cfg); alone.Number != 2 || len(alone.Broken) != 1 {
		t.Errorf("conditionsAlone() = %+v, want the same without an agent", alone)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	r.cfg.Node.Enabled = config.Auto
	a = r.build(t)
	a.kubeletsNode.Store(true)
	a.owners.Refresh(t.Context())
	if c := a.customConditions(); !c.Checks[0].LocalOnly || c.Checks[1].LocalOnly {
		t.Errorf("customConditions() = %+v, want that of another domain shown here only", c.Checks)
	}
}
