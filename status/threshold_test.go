package status_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/status"
)

func threshold(t testing.TB, text string) status.Threshold {
	t.Helper()
	got, err := status.ParseThreshold(text)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestThresholdOf(t *testing.T) {
	for _, c := range []struct {
		name, text string
		whole      uint64
		want       uint64
	}{
		{"a quantity is itself", "100Mi", 1 << 40, 100 << 20},
		{"a decimal quantity too", "1G", 5, 1e9},
		{"a part of a byte rounds up", "1500m", 10, 2},
		{"a percentage is a part", "10%", 12345, 1234},
		{"a percentage can be broken", "2.5%", 1000, 25},
		{"nothing", "0%", 1000, 0},
		{"all", "100%", 1001, 1001},
		{"of an exabyte", "15%", 1 << 60, (1 << 60) / 100 * 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := threshold(t, c.text).Of(c.whole); got > c.want || got < c.want-c.want/1e12 {
				t.Errorf("Of(%d) = %d, want %d", c.whole, got, c.want)
			}
		})
	}
	if got := (status.Threshold{}).Of(1000); got != 0 {
		t.Errorf("Of() of no threshold = %d, want 0", got)
	}
}

func TestInvalidThresholds(t *testing.T) {
	for _, c := range []struct{ text, message string }{
		{"", "neither"},
		{"%", "not a percentage"},
		{"ten%", "not a percentage"},
		{"NaN%", "not a percentage"},
		{"101%", "outside"},
		{"-1%", "outside"},
		{"+Inf%", "outside"},
		{"-5Mi", "negative"},
		{"10 %", "not a percentage"},
		{"100MB", "neither"},
		{"1e30", "too large"},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := status.ParseThreshold(c.text)
			if err == nil || !strings.Contains(err.Error(), c.message) || got != (status.Threshold{}) {
				t.Errorf("ParseThreshold(%q) = %v, %v, want an error that says %q", c.text, got, err, c.message)
			}
		})
	}
}

func TestThresholdText(t *testing.T) {
	var got status.Threshold
	if err := got.UnmarshalText([]byte("12.5%")); err != nil {
		t.Fatal(err)
	}
	text, err := got.MarshalText()
	if err != nil || string(text) != "12.5%" {
		t.Errorf("MarshalText() = %q, %v, want 12.5%%", text, err)
	}
	if err := got.UnmarshalText([]byte("lots")); err == nil || got != threshold(t, "12.5%") {
		t.Errorf("UnmarshalText(lots) = %v, %v, want an error and the old value", got, err)
	}
}

func FuzzParseThreshold(f *testing.F) {
	for _, seed := range []string{"100Mi", "10%", "1e3", "0x1p-2%", "-0%", "9223372036854775807"} {
		f.Add(seed, uint64(1<<40))
	}
	f.Fuzz(func(t *testing.T, text string, whole uint64) {
		got, err := status.ParseThreshold(text)
		if err != nil {
			return
		}
		if strings.HasSuffix(text, "%") && got.Of(whole) > whole {
			t.Errorf("ParseThreshold(%q).Of(%d) = %d, want a part", text, whole, got.Of(whole))
		}
		again, err := status.ParseThreshold(got.String())
		if err != nil || again != got {
			t.Errorf("ParseThreshold(%q) = %v, %v, want what it was written from: %v", got.String(), again, err, got)
		}
	})
}

func TestDefaultPolicyIsWhatItSays(t *testing.T) {
	want := status.Policy{
		MemoryAvailable: threshold(t, "100Mi"), NodefsAvailable: threshold(t, "10%"), NodefsInodesFree: threshold(t, "5%"),
		ImagefsAvailable: threshold(t, "15%"), ImagefsInodesFree: threshold(t, "5%"), PIDAvailable: threshold(t, "5%"),
		TransitionPeriod: 5 * time.Minute,
	}
	if got := status.DefaultPolicy(); !reflect.DeepEqual(got, want) {
		t.Errorf("DefaultPolicy() = %+v, want %+v", got, want)
	}
	want.TransitionPeriod = -1
	if err := want.Validate(); err == nil || !strings.Contains(err.Error(), "transitionPeriod") {
		t.Errorf("Validate() = %v, want an error on transitionPeriod", err)
	}
}
