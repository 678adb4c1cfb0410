package runtimetest_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/test/kept"
)

var update = flag.Bool("update", false, "rewrite the table in docs/reference/runtimes.md")

// columns are the runtimes of the table, in order.
var columns = []string{"containerd", "Docker", "Podman", "runc", "crun"}

func results(t *testing.T) map[string][]runtimetest.Result {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != len(columns) {
		t.Fatalf("results = %v, %v, want a file for each of %v", files, err, columns)
	}
	all := map[string][]runtimetest.Result{}
	for _, file := range files {
		kind := strings.TrimSuffix(filepath.Base(file), ".json")
		if !slices.Contains(columns, kind) {
			t.Errorf("results of %s have no column in the table", kind)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []runtimetest.Result
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[kind] = list
	}
	return all
}

func TestTheTableInTheDocsIsMadeFromTheResults(t *testing.T) {
	table, err := runtimetest.Table(columns, results(t))
	if err != nil {
		t.Fatal(err)
	}
	kept.Block(t, "../../docs/reference/runtimes.md", table, *update, "go test ./runtime/runtimetest -update")
}

func TestATableWantsAllResults(t *testing.T) {
	all := results(t)
	all["crun"] = all["crun"][1:]
	if _, err := runtimetest.Table(columns, all); err == nil || !strings.Contains(err.Error(), "crun: no result") {
		t.Errorf("Table() without a result = %v, want an error that names the runtime", err)
	}
}
