package inspect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

func TestWhatTheDoctorHearsOfChecks(t *testing.T) {
	fault := conditions.Fault{Path: "/c/broken", Problem: "may be written", Mend: "chmod"}
	facts := Conditions("/c", []conditions.Check{
		{Path: "/c/broken", Answer: status.NotRun, Message: fault.String() + "; chmod", Faulty: true},
		{Path: "/c/fine", Answer: status.Passed},
		{Path: "/c/bad", Answer: status.Problem},
		{Path: "/c/new", Answer: status.NotAsked},
		{Path: "/c/closed", User: "nobody", Answer: status.NotRun, Message: "start /c/closed: permission denied"},
		{Path: "/c/slow", User: "root", Answer: status.TimedOut, Message: "the check did not end"},
		{Path: "/c/local", Type: "example.com/A", Answer: status.Passed, LocalOnly: true},
	}, []conditions.Fault{fault})
	if len(facts.Broken) != 1 || facts.Broken[0].Command != "chmod" || len(facts.Local) != 1 || facts.Number != 7 {
		t.Errorf("Conditions() = %+v, want one that is broken, one that is shown here only", facts)
	}
	if len(facts.Silent) != 2 || !strings.HasSuffix(facts.Silent[0].Command, "--no-new-privs /c/closed") || facts.Silent[1].Command != "run it manually: /c/slow" {
		t.Errorf("Conditions() = %+v, want two that do not say anything, each with how to run it", facts.Silent)
	}
}

func TestChecksAreKnownWithoutAnAgent(t *testing.T) {
	cfg := config.Default()
	cfg.Conditions.Directory = filepath.Join(t.TempDir(), "conditions.d")
	if err := os.Mkdir(cfg.Conditions.Directory, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"own": "#!/bin/sh\n", "foreign": "#!/bin/sh\n# hostler:\n#   type: example.com/A\n", "faulty": "#!/bin/sh\n# hostler:\n#   x: y\n"} {
		if err := os.WriteFile(cfg.Conditions.Directory+"/"+name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if facts := conditionsAlone(cfg); facts.Number != 2 || len(facts.Broken) != 1 {
		t.Errorf("conditionsAlone() = %+v, want two checks and a fault", facts)
	}
}
