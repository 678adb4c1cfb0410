package gc_test

import (
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/gc"
)

func TestPolicyValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*gc.Policy)
		want   string // part of the error; empty for none
	}{
		{"the default is valid", func(*gc.Policy) {}, ""},
		{"equal thresholds never end", func(p *gc.Policy) { p.Images.LowPercent = 85 }, "not below"},
		{"low above high", func(p *gc.Policy) { p.Images.LowPercent = 90 }, "not below"},
		{"a percentage above 100", func(p *gc.Policy) { p.Images.HighPercent = 101 }, "outside"},
		{"a percentage below 0", func(p *gc.Policy) { p.Images.LowPercent = -1 }, "outside"},
		{"both ends of the range", func(p *gc.Policy) { p.Images.HighPercent, p.Images.LowPercent = 100, 0 }, ""},
		{"inodes are checked as well", func(p *gc.Policy) { p.Images.InodesLowPercent = 95 }, "inodes"},
		{"a negative minimum age", func(p *gc.Policy) { p.Images.MinimumAge = -1 }, "negative"},
		{"a negative maximum age", func(p *gc.Policy) { p.Images.MaximumAge = -1 }, "negative"},
		{"a maximum age equal to the minimum", func(p *gc.Policy) { p.Images.MaximumAge = 2 * time.Minute }, "not above"},
		{"a maximum age above the minimum", func(p *gc.Policy) { p.Images.MaximumAge = 3 * time.Minute }, ""},
		{"no container at all may stay", func(p *gc.Policy) { p.Containers.MaxPerPodContainer, p.Containers.MaxContainers = 0, 0 }, ""},
		{"both limits off", func(p *gc.Policy) { p.Containers.MaxPerPodContainer, p.Containers.MaxContainers = -1, -1 }, ""},
		{"a limit below -1", func(p *gc.Policy) { p.Containers.MaxPerPodContainer = -2 }, "set -1 for no limit"},
		{"a total below -1", func(p *gc.Policy) { p.Containers.MaxContainers = -7 }, "in total"},
		{"a container's maximum age below its minimum", func(p *gc.Policy) {
			p.Containers.MinimumAge, p.Containers.MaximumAge = time.Hour, time.Minute
		}, "not above"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := gc.DefaultPolicy()
			tt.change(&p)
			checkError(t, "Validate()", p.Validate(), tt.want)
		})
	}
}

func TestOptionsValidate(t *testing.T) {
	tests := []struct {
		name    string
		options gc.Options
		want    string
	}{
		{"nothing asked is an ordinary run", gc.Options{}, ""},
		{"a target", gc.Options{TargetPercent: 40}, ""},
		{"a negative target", gc.Options{TargetPercent: -1}, "outside"},
		{"a target above 100", gc.Options{TargetPercent: 101}, "outside"},
		{"two goals at once", gc.Options{TargetPercent: 40, AllUnused: true}, "choose one"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { checkError(t, "Validate()", tt.options.Validate(), tt.want) })
	}
}

func checkError(t *testing.T, call string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s = %v, want no error", call, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s = %v, want an error with %q", call, err, want)
	}
}
