package plan_test

import (
	"encoding/json"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/plan"
)

func TestADelayIsReadAsItIsWritten(t *testing.T) {
	for want, d := range map[string]time.Duration{`"0s"`: 0, `"1m30s"`: 90 * time.Second, `"infinity"`: plan.NoLimit} {
		text, err := json.Marshal(plan.Delay{Duration: d})
		if err != nil || string(text) != want {
			t.Errorf("Marshal(%d) = %s, %v, want %s", d, text, err, want)
		}
		var back plan.Delay
		if err := json.Unmarshal(text, &back); err != nil || back.Duration != d {
			t.Errorf("Unmarshal(%s) = %d, %v, want %d", text, back.Duration, err, d)
		}
	}
	if err := json.Unmarshal([]byte(`"soon"`), &plan.Delay{}); err == nil {
		t.Error(`Unmarshal("soon") = nil, want an error`)
	}
}
