package backend

import (
	"testing"
	"time"

	"hostler.io/hostler/runtime"
)

// runc does not keep how a container ended, and 0 would be a success.
func TestAnExitCodeThatNobodyKnowsIsNotTold(t *testing.T) {
	for name, c := range map[string]struct {
		container runtime.Container
		told      bool
	}{
		"has ended, and nobody knows how": {runtime.Container{State: runtime.Exited}, false},
		"has ended":                       {runtime.Container{State: runtime.Exited, FinishedAt: time.Unix(1, 0)}, true},
		"runs":                            {runtime.Container{State: runtime.Running}, true},
	} {
		if code := exitCode(c.container); (code != nil) != c.told {
			t.Errorf("exit code of a container that %s = %v, want it told: %t", name, code, c.told)
		}
	}
}
