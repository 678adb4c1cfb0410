package controlplanetest

import (
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/test/kept"
)

// Backend is a control plane under test.
type Backend = conformance.Backend

// Run runs every check of the conformance suite as a test of its own, each on a new
// Backend, and returns what became of them.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) []conformance.Result {
	return run(t, newBackend, func(t *testing.T, test func(*testing.T)) { test(t) })
}

// RunInBubbles is Run for a control plane in memory: each check has a testing/synctest
// bubble of its own, in which nothing is waited for.
func RunInBubbles(t *testing.T, newBackend func(t *testing.T) Backend) []conformance.Result {
	return run(t, newBackend, func(t *testing.T, test func(*testing.T)) { synctest.Test(t, test) })
}

// run runs every check in surroundings of its own.
func run(t *testing.T, newBackend func(t *testing.T) Backend, in func(*testing.T, func(*testing.T))) []conformance.Result {
	var results []conformance.Result
	for _, check := range conformance.Checks() {
		r := conformance.Result{Check: check.Name, Status: conformance.Failed}
		t.Run(check.Name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := newBackend(t)
				r = conformance.Try(t.Context(), check, &b)
				switch {
				case r.Status == conformance.Failed, r.Forbidden:
					t.Error(r.Message)
				case r.Status != conformance.OK:
					t.Logf("%s: %s", r.Status, r.Message)
				}
				if err := b.Client.Close(); err != nil {
					t.Errorf("Close() = %v, want no error", err)
				}
			})
		})
		results = append(results, r)
	}
	return results
}

// resultsFolder is where results are kept, seen from the package of any control plane,
// which stand side by side.
const resultsFolder = "../conformance/testdata"

// Record runs the suite, and compares what became of its checks with what is kept for
// the control plane of that type, which docs/reference/control-planes.md is made from; update
// writes that again. It does neither where `go test -run` leaves some out.
func Record(t *testing.T, kind string, update bool, newBackend func(t *testing.T) Backend) {
	t.Helper()
	record(t, kind, update, Run(t, newBackend))
}

func record(t *testing.T, kind string, update bool, results []conformance.Result) {
	t.Helper()
	if t.Failed() || slices.ContainsFunc(results, func(r conformance.Result) bool { return r.Status == conformance.Failed }) {
		return // the checks tell, or were left out
	}
	kept.JSON(t, filepath.Join(resultsFolder, kind+".json"), results, update, "run this test with -update, and then: go test ./controlplane/conformance -update")
}
