package runc_test

import (
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/runtime/runc"
)

func sample(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	must(t, err)
	return text
}

// Real files of the programs, on a host with both versions of cgroups.
func TestRecordedFilesAreUnderstood(t *testing.T) {
	const text = `of "", image "registry.example/web:1", signal "SIGQUIT", critical "true", own PIDs true, `
	for _, c := range []struct{ got, want string }{
		{runc.ParseRunc(sample(t, "runc-1.1.5/state.json")), `runc pid 27 since 1704413, created 2026-11-22 12:25:06.604608027 +0000 UTC, ` + text +
			`cgroup /sys/fs/cgroup/unified/hostler-lab-5010/runc-794579306/web, freezer /sys/fs/cgroup/freezer/hostler-lab-5010/runc-794579306/web`},
		{runc.ParseCrun(sample(t, "crun-1.8.1/status"), sample(t, "crun-1.8.1/config.json")), `crun pid 37 since 1704428, created 2026-11-22 12:25:06.769355 +0000 UTC, ` + text +
			`cgroup /sys/fs/cgroup/hostler-lab-5010/crun-3827366149/web, freezer /sys/fs/cgroup/freezer/hostler-lab-5010/crun-3827366149/web`},
	} {
		if c.got != c.want {
			t.Errorf("state = %s\nwant %s", c.got, c.want)
		}
	}
}

// FuzzParseRunc panics on a state that could lead to a wrong process.
func FuzzParseRunc(f *testing.F) {
	f.Add(sample(f, "runc-1.1.5/state.json"))
	f.Add([]byte(`{"init_process_pid":1,"init_process_start":2,"created":"2026-11-20T12:00:00Z","config":{"labels":["a=b=c","d"]},"cgroup_paths":{"":""}}`))
	f.Fuzz(func(_ *testing.T, text []byte) { _ = runc.ParseRunc(text) })
}

// FuzzParseCrun panics on a state that could lead to a wrong process.
func FuzzParseCrun(f *testing.F) {
	f.Add(sample(f, "crun-1.8.1/status"), sample(f, "crun-1.8.1/config.json"))
	f.Fuzz(func(_ *testing.T, status, config []byte) { _ = runc.ParseCrun(status, config) })
}
