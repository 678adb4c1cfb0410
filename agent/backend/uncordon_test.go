package backend

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/hint"
)

// atStep stores a reboot at this step.
type atStep controlplane.RebootStep

func (s atStep) Load(into any) {
	into.(*reboot.Memory).Request = &reboot.Request{Step: controlplane.RebootStep(s)}
}

func (atStep) Unread() bool { return false }

func (atStep) SaveNow(func() any) {}

func TestAnUncordonDuringARebootNamesTheCommandThatCancelsIt(t *testing.T) {
	for _, step := range []controlplane.RebootStep{controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting, controlplane.RebootVerifying} {
		b := &Backend{Reboots: &Reboots{Controller: reboot.New(reboot.Options{Store: atStep(step), Now: time.Now, Log: slog.New(slog.DiscardHandler)})}}
		_, err := b.Cordon(t.Context(), false)
		if refused, is := errors.AsType[*hint.Error](err); !is || !strings.Contains(refused.Message, string(step)) || !strings.Contains(refused.Hint, "`hostler reboot --cancel`") {
			t.Errorf("Cordon(false) at step %s = %v, want it refused with a hint", step, err)
		}
	}
}
