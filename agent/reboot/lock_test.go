package reboot_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
)

func TestAServerHasAMinuteToAnswer(t *testing.T) {
	for age, want := range map[time.Duration]string{
		time.Second:     "no server has answered yet",
		-time.Hour:      "no server has answered yet", // the clock was set back
		2 * time.Minute: "no `hostler server` with the controller reboots",
	} {
		turn := reboot.Server{}.Turn(t.Context(), &reboot.Request{ID: "r", Since: time.Now().Add(-age)}, &corev1.Node{})
		if !strings.HasPrefix(turn.Message, want) || !turn.Lost || !turn.Unanswered {
			t.Errorf("%v after the request, Turn() = %+v, want %q", age, turn, want)
		}
	}
}

// TestAServersMessageIsPrintable has a server whose message becomes unprintable only when its JSON is read.
func TestAServersMessageIsPrintable(t *testing.T) {
	node := &corev1.Node{}
	node.Annotations = map[string]string{controlplane.AnnotationRebootSlot: `{"id":"r","message":"\u001b[2J` + strings.Repeat("x", 1<<20) + `"}`}
	turn := reboot.Server{}.Turn(t.Context(), &reboot.Request{ID: "r", Since: time.Now()}, node)
	if !strings.HasPrefix(turn.Message, "?[2Jx") || len(turn.Message) > 4<<10 {
		t.Errorf("Turn() has a message of %d bytes, %q..., want 4 KiB that are printable", len(turn.Message), turn.Message[:5])
	}
}
