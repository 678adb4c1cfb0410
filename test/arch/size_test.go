package arch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// If a method is looked up by a name that is only known at run time, as templates do, the linker
// keeps every method of every type.
func TestTheLinkerMayDropMethodsThatNobodyCalls(t *testing.T) {
	const mark = "<ReflectMethod>" // the linker's mark of functions that do so
	// Compiled as `make build` does, so that go links only.
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w -dumpdep", "-o", filepath.Join(t.TempDir(), "hostler"), module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%.2000s", err, out)
	}
	reachedBy := map[string]string{} // the first caller of each, up to main
	var found string
	for line := range strings.Lines(string(out)) {
		from, to, isEdge := strings.Cut(strings.TrimSpace(line), " -> ")
		if !isEdge {
			continue
		}
		from, _, _ = strings.Cut(from, " <")
		symbol, _, _ := strings.Cut(to, " <")
		if reachedBy[symbol] == "" {
			reachedBy[symbol] = from
		}
		if found == "" && strings.Contains(to, mark) {
			found = symbol
		}
	}
	if len(reachedBy) < 10_000 {
		t.Fatalf("the linker names %d symbols, want all of them", len(reachedBy))
	}
	if found == "" {
		return
	}
	chain := []string{found}
	for at := reachedBy[found]; at != "" && len(chain) < 50; at = reachedBy[at] {
		chain = append(chain, at)
	}
	t.Errorf("a function that looks methods up by name is reached, which costs megabytes:\n%s", strings.Join(chain, "\n<- "))
}
