package reboot_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/reboot"
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
