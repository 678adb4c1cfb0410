package agent

import (
	"testing"

	"hostler.io/hostler/agent/config"
)

func TestNothingIsStartedAgainWhereThatIsSwitchedOff(t *testing.T) {
	for setting, never := range map[string]bool{string(config.Auto): false, config.RestartNever: true} {
		rig := newRig(t)
		rig.cfg.Shutdown.RestartAfterBoot = setting
		if got := rig.build(t).restartOptions(rig.cfg).Never; got != never {
			t.Errorf("restartAfterBoot: %s has it never: %t, want %t", setting, got, never)
		}
	}
}
