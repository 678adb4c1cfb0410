package plan_test

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/shutdown/plan"
)

func TestPeriods(t *testing.T) {
	sec := func(n int) *time.Duration { d := time.Duration(n) * time.Second; return &d }
	exact := func(d time.Duration) *time.Duration { return &d }
	two := func(regular, critical int) []plan.PhaseSpec {
		return []plan.PhaseSpec{
			{Name: "regular", Grace: *sec(regular)},
			{Name: "critical", Priority: plan.CriticalPriority, Grace: *sec(critical)},
		}
	}
	tests := []struct {
		name    string
		periods plan.Periods
		want    []plan.PhaseSpec
		field   string // in the error
	}{
		{"nothing given takes the defaults", plan.Periods{}, two(20, 10), ""},
		{"two periods", plan.Periods{GracePeriod: sec(60), GracePeriodCriticalPods: sec(15)}, two(45, 15), ""},
		{"a total alone leaves critical pods their default", plan.Periods{GracePeriod: sec(60)}, two(50, 10), ""},
		{"zero disarms, whatever critical pods would get by default", plan.Periods{GracePeriod: sec(0)}, nil, ""},
		{"zero and zero disarm", plan.Periods{GracePeriod: sec(0), GracePeriodCriticalPods: sec(0)}, nil, ""},
		{"critical pods without time of their own share one phase", plan.Periods{GracePeriod: sec(30), GracePeriodCriticalPods: sec(0)}, []plan.PhaseSpec{{Name: "regular", Grace: 30 * time.Second}}, ""},
		{"critical equals total", plan.Periods{GracePeriod: sec(10), GracePeriodCriticalPods: sec(10)}, nil, "gracePeriodCriticalPods"},
		{"critical exceeds total", plan.Periods{GracePeriod: sec(10), GracePeriodCriticalPods: sec(11)}, nil, "gracePeriodCriticalPods"},
		{"critical by default exceeds total", plan.Periods{GracePeriod: sec(5)}, nil, "gracePeriodCriticalPods"},
		{"critical without a total", plan.Periods{GracePeriod: sec(0), GracePeriodCriticalPods: sec(5)}, nil, "gracePeriodCriticalPods"},
		{"total is negative", plan.Periods{GracePeriod: sec(-1)}, nil, "gracePeriod"},
		{"critical is negative", plan.Periods{GracePeriodCriticalPods: sec(-1)}, nil, "gracePeriodCriticalPods"},
		{"total is under a second", plan.Periods{GracePeriod: exact(time.Millisecond)}, nil, "gracePeriod"},
		{"regular pods are left less than a second", plan.Periods{GracePeriod: exact(10500 * time.Millisecond)}, nil, "gracePeriod"},
		{"total is too long", plan.Periods{GracePeriod: exact(math.MaxInt64)}, nil, "gracePeriod"},
		{"groups are sorted by priority", plan.Periods{ByPriority: []plan.PriorityGroup{{1000, 5 * time.Second}, {-5, 7 * time.Second}, {0, 0}}}, []plan.PhaseSpec{
			{Name: "priority--5", Priority: -5, Grace: 7 * time.Second},
			{Name: "priority-0", Priority: 0, Grace: 0},
			{Name: "priority-1000", Priority: 1000, Grace: 5 * time.Second},
		}, ""},
		{"groups without any time disarm", plan.Periods{ByPriority: []plan.PriorityGroup{{0, 0}, {1, 0}}}, nil, ""},
		{"an empty list of groups disarms", plan.Periods{ByPriority: []plan.PriorityGroup{}}, nil, ""},
		{"groups beside a period", plan.Periods{GracePeriod: sec(30), ByPriority: []plan.PriorityGroup{{0, time.Second}}}, nil, "byPriority"},
		{"groups beside a period for critical pods", plan.Periods{GracePeriodCriticalPods: sec(3), ByPriority: []plan.PriorityGroup{{0, time.Second}}}, nil, "byPriority"},
		{"two groups of one priority", plan.Periods{ByPriority: []plan.PriorityGroup{{1, time.Second}, {1, time.Second}}}, nil, "byPriority[1].priority"},
		{"a group is negative", plan.Periods{ByPriority: []plan.PriorityGroup{{1, time.Second}, {2, -time.Second}}}, nil, "byPriority[1].gracePeriod"},
		{"the sum of groups is too long", plan.Periods{ByPriority: []plan.PriorityGroup{{1, math.MaxInt64 / 2}, {2, math.MaxInt64 / 2}}}, nil, "byPriority[1].gracePeriod"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.periods.Phases()
			if tt.field == "" {
				if err != nil || !reflect.DeepEqual(got, tt.want) {
					t.Fatalf("Phases() = %v, %v, want %v", got, err, tt.want)
				}
				if err := plan.Check(got); err != nil {
					t.Errorf("Check(%v) = %v, want nil", got, err)
				}
				return
			}
			if fault, named := errors.AsType[*field.Error](err); !named || fault.Field != "shutdown."+tt.field || got != nil {
				t.Errorf("Phases() = %v, %v, want an error of field %s", got, err, tt.field)
			}
		})
	}
}

func TestDefaultsAreThoseOfNoConfiguration(t *testing.T) {
	want, err := plan.Periods{}.Phases()
	if got := plan.Defaults(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Defaults() = %v, want %v, %v", got, want, err)
	}
}

func TestCheckRefusesPhasesThatNobodyConfigured(t *testing.T) {
	for name, phases := range map[string][]plan.PhaseSpec{
		"out of order":       {{Priority: 1, Grace: 1}, {Priority: 0, Grace: 1}},
		"one priority twice": {{Priority: 1, Grace: 1}, {Priority: 1, Grace: 1}},
		"negative":           {{Priority: 1, Grace: -1}},
		"too long":           {{Priority: 1, Grace: math.MaxInt64 / 2}, {Priority: 2, Grace: math.MaxInt64 / 2}},
	} {
		if err := plan.Check(phases); err == nil {
			t.Errorf("Check() of phases that are %s = nil, want an error", name)
		}
	}
}

func TestFit(t *testing.T) {
	phases := []plan.PhaseSpec{
		{Name: "regular", Grace: 20 * time.Second},
		{Name: "critical", Priority: plan.CriticalPriority, Grace: 10 * time.Second},
	}
	tests := []struct {
		name              string
		granted           time.Duration
		regular, critical time.Duration
	}{
		{"nobody knows what is granted", 0, 20 * time.Second, 10 * time.Second},
		{"just enough", 36 * time.Second, 20 * time.Second, 10 * time.Second},
		{"more than enough", time.Hour, 20 * time.Second, 10 * time.Second},
		{"regular pods get less time", 26 * time.Second, 10 * time.Second, 10 * time.Second},
		{"logind's default leaves regular pods a second to be asked in", 5 * time.Second, time.Second, 2750 * time.Millisecond},
		{"critical pods are asked first", time.Second, 0, 750 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := plan.Fit(phases, tt.granted)
			if got[0].Grace != tt.regular || got[1].Grace != tt.critical {
				t.Errorf("Fit(%v) = %v, %v, want %v, %v", tt.granted, got[0].Grace, got[1].Grace, tt.regular, tt.critical)
			}
			if phases[0].Grace != 20*time.Second {
				t.Errorf("Fit() changed its argument to %v", phases)
			}
		})
	}
}
