package generated_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/test/generated"
)

var update = flag.Bool("update", false, "write what is generated")

// TestTheGoOfTheProtocolIsCurrent compares the committed code with the protocol, or writes it with
// -update.
func TestTheGoOfTheProtocolIsCurrent(t *testing.T) {
	const root, file = "../..", "controlplane/plugin/v1/controlplane.proto"
	made, err := generated.Protocol(t.Context(), root, file)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != 2 {
		t.Errorf("Protocol(%s) makes %d files, want one of messages and one of the service", file, len(made))
	}
	for name, want := range made {
		path := filepath.Join(root, name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s says now (%v); write it with: make generate", name, file, err)
		}
	}
}

func TestAFaultInTheProtocolIsNamed(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "bad.proto"), []byte("syntax = \"proto3\";\nmessage M { Missing m = 1; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	made, err := generated.Protocol(t.Context(), root, "bad.proto")
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("bad.proto:2:")) {
		t.Errorf("Protocol() = %d files, %v, want an error with file and line", len(made), err)
	}
}
