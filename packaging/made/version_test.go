package made_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The version of what is built comes from git, whatever state the clone is in.
func TestVersionOfAClone(t *testing.T) {
	clone := t.TempDir()
	script, err := os.ReadFile("../version")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(clone, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(clone, name), content, mode); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = clone
		// Nothing of who runs the test: neither a configuration nor a clone around this one.
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(clone),
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	commit := func() { run("git", "commit", "--quiet", "--allow-empty", "--message", "one more") }
	write("packaging/version", script, 0o755)
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"no clone", func() {}, `0\.1\.0-dev`},
		{"a clone without a tag", func() { run("git", "init", "--quiet"); run("git", "add", "."); commit() }, `0\.1\.0-dev\.1\+g[0-9a-f]{12}`},
		{"a file that is new", func() { write("new", nil, 0o644) }, `0\.1\.0-dev\.1\+g[0-9a-f]{12}\.dirty`},
		{"a tag", func() { run("git", "add", "."); commit(); run("git", "tag", "v1.2.3") }, `1\.2\.3`},
		{"a tag that is no version", func() { run("git", "tag", "vain") }, `1\.2\.3`},
		{"a file that is changed", func() { write("new", []byte("x"), 0o644) }, `1\.2\.3\+dirty`},
		{"commits later", func() { run("git", "add", "."); commit(); commit() }, `1\.2\.3\+2\.g[0-9a-f]{12}`},
	} {
		step.do()
		if got := run("packaging/version"); !regexp.MustCompile("^" + step.want + "$").MatchString(got) {
			t.Errorf("%s: packaging/version prints %q, want %s", step.what, got, step.want)
		}
	}
}
