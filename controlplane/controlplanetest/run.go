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

// Run runs every check of the conformance suite as a subtest, each on a new Backend, and returns
// the results.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) []conformance.Result {
	return run(t, 20, newBackend, func(t *testing.T, test func(*testing.T)) { test(t) }) // minutes instead of seconds
}

// RunInBubbles is Run for a control plane in memory: each check runs in a bubble of
// testing/synctest, where waiting takes no real time.
func RunInBubbles(t *testing.T, newBackend func(t *testing.T) Backend) []conformance.Result {
	return run(t, 1, newBackend, func(t *testing.T, test func(*testing.T)) { synctest.Test(t, test) })
}

// run runs every check as in decides.
func run(t *testing.T, patience int, newBackend func(t *testing.T) Backend, in func(*testing.T, func(*testing.T))) []conformance.Result {
	var results []conformance.Result
	for _, check := range conformance.Checks() {
		r := conformance.Result{Check: check.Name, Status: conformance.Failed}
		t.Run(check.Name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := newBackend(t)
				b.Patience = patience
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

// resultsFolder is where results are stored, relative to the package of any control plane.
const resultsFolder = "../conformance/testdata"

// Record runs the suite, and compares the results with the stored results for that type of control
// plane. docs/reference/control-planes.md is made from them. update stores them again. If `go test
// -run` leaves checks out, Record does neither.
func Record(t *testing.T, kind string, update bool, newBackend func(t *testing.T) Backend) {
	t.Helper()
	record(t, kind, update, Run(t, newBackend))
}

func record(t *testing.T, kind string, update bool, results []conformance.Result) {
	t.Helper()
	if t.Failed() || slices.ContainsFunc(results, func(r conformance.Result) bool { return r.Status == conformance.Failed }) {
		return // the failed checks report it, or some were left out
	}
	kept.JSON(t, filepath.Join(resultsFolder, kind+".json"), results, update, "run this test with -update, and then: go test ./controlplane/conformance -update")
}
