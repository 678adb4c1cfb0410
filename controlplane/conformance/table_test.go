package conformance_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/test/kept"
)

var update = flag.Bool("update", false, "rewrite the table in docs/reference/control-planes.md")

// columns are the control planes of the table, in its order. The fake is for tests.
var columns = []string{"embedded", "kubernetes", "etcd", "plugin"}

// results reads the results that the control planes' own tests have stored.
func results(t *testing.T) (types []string, all map[string][]conformance.Result) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("results = %v, %v, want a file of each control plane's", files, err)
	}
	all = map[string][]conformance.Result{}
	for _, file := range files {
		kind := strings.TrimSuffix(filepath.Base(file), ".json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []conformance.Result
		if err := json.Unmarshal(text, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[kind] = list
		if kind != "fake" && !slices.Contains(columns, kind) {
			t.Errorf("results of %s have no column in the table", kind)
		}
	}
	for _, kind := range columns {
		if all[kind] != nil {
			types = append(types, kind)
		}
	}
	return types, all
}

func TestTheTableInTheDocsIsMadeFromTheResults(t *testing.T) {
	types, all := results(t)
	table, err := conformance.Table(types, all)
	if err != nil {
		t.Fatal(err)
	}
	kept.Block(t, "../../docs/reference/control-planes.md", table, *update, "go test ./controlplane/conformance -update")
}

func TestEveryResultIsOfACheckThatThereIs(t *testing.T) {
	var names []string
	for _, check := range conformance.Checks() {
		names = append(names, check.Name)
	}
	_, all := results(t)
	for kind, list := range all {
		var tried []string
		for _, r := range list {
			tried = append(tried, r.Check)
		}
		i := 0
		for i < len(tried) && i < len(names) && tried[i] == names[i] {
			i++
		}
		if i < len(tried) || i < len(names) {
			t.Errorf("results of %s = those of all checks in their order up to number %d, want all %d: run its conformance test with -update", kind, i, len(names))
		}
	}
}

func TestEveryFeatureHasChecksAndEveryCheckAFeature(t *testing.T) {
	seen := map[string]bool{}
	for _, check := range conformance.Checks() {
		if seen[check.Name] {
			t.Errorf("two checks are named %q", check.Name)
		}
		seen[check.Name] = true
		if !slices.Contains(conformance.Features(), check.Feature) {
			t.Errorf("check %q is of feature %q, which is not listed", check.Name, check.Feature)
		}
	}
	for _, feature := range conformance.Features() {
		if !slices.ContainsFunc(conformance.Checks(), func(c conformance.Check) bool { return c.Feature == feature }) {
			t.Errorf("feature %q has no check", feature)
		}
	}
}

func TestTheTableReportsWhatIsMissingAndWhy(t *testing.T) {
	var list []conformance.Result
	for _, check := range conformance.Checks() {
		list = append(list, conformance.Result{Check: check.Name, Status: conformance.OK})
	}
	list[0].Status, list[0].Message = conformance.Untried, "nobody was there"
	got, err := conformance.Table([]string{"x"}, map[string][]conformance.Result{"x": list})
	if err != nil || strings.Count(got, "\n- ") != len(conformance.Features())-1 || !strings.Contains(got, " | in part (1)\n") || !strings.Contains(got, "\n1. Nobody was there.") {
		t.Errorf("Table() = %s, %v, want all features but one in the list, and one row and note", got, err)
	}
	if _, err := conformance.Table([]string{"x"}, map[string][]conformance.Result{"x": list[1:]}); err == nil {
		t.Error("Table() without a check's result = no error, want one")
	}
}
