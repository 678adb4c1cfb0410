package reboot_test

import (
	"testing"

	"hostler.io/hostler/agent/reboot"
)

// TestVerdicts has a row for each verdict: either it holds a reboot in turn, or the drain before makes it harmless.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		verdicts reboot.Verdicts
		want     string
	}{
		"a healthy host":                                  {reboot.Verdicts{}, ""},
		"a state that is not on the disk":                 {reboot.Verdicts{Unstored: "not persisted: disk full"}, "not persisted: disk full (state)"},
		"an agent that has just started":                  {reboot.Verdicts{Unqueried: true}, "they have not been queried since the agent started (runtimes)"},
		"runtimes that are not ready":                     {reboot.Verdicts{NotReady: map[string]string{"docker": "", "cri": "no answer"}}, "no answer (runtime cri), it is not ready (runtime docker)"},
		"a clone":                                         {reboot.Verdicts{Twin: "another hostler also writes this Node"}, "another hostler also writes this Node (clone)"},
		"a drain that is refused":                         {reboot.Verdicts{Refusal: "another drain is running"}, "another drain is running (drain)"},
		"a delay too short, and a drain of all pods":      {reboot.Verdicts{Unprotected: "logind grants 1s"}, ""},
		"a delay too short, and pods of a kubelet":        {reboot.Verdicts{Unprotected: "logind grants 1s", KeepsPods: true}, "logind grants 1s (protection)"},
		"a guard that has just started, and a drain":      {reboot.Verdicts{Unguarded: "starting"}, ""},
		"a guard that has just started, and a kubelet":    {reboot.Verdicts{Unguarded: "starting", KeepsPods: true}, "starting (protection)"},
		"a guard that does not answer":                    {reboot.Verdicts{Unasked: "no answer"}, "no answer (drain)"},
		"a kubelet's pods, which hostler does not drain":  {reboot.Verdicts{Refusal: "delegated", KeepsPods: true}, ""},
		"several verdicts, of which a message names some": {reboot.Verdicts{Unstored: "a", Unqueried: true, Twin: "b", Refusal: "c"}, "a (state), they have not been queried since the agent started (runtimes), b (clone) and 1 more"},
	} {
		if got := reboot.Names(c.verdicts.Held()); got != c.want {
			t.Errorf("%s: Held() = %q, want %q", name, got, c.want)
		}
	}
}
