package fleet_test

import (
	"math"
	"testing"
	"time"

	"hostler.io/hostler/test/bench/fleet"
)

func TestQuantilesAreValuesThatWereSeen(t *testing.T) {
	values := []time.Duration{1, 2, 3, 4}
	for q, want := range map[float64]time.Duration{0: 1, 0.25: 1, 0.5: 2, 0.51: 3, 0.99: 4, 1: 4} {
		if got := fleet.Quantile(values, q); got != want {
			t.Errorf("Quantile(%v, %v) = %v, want %v", values, q, got, want)
		}
	}
	if got := fleet.Median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("Median() = %v, want 5", got)
	}
	if got := fleet.Median[float64](nil); got != 0 {
		t.Errorf("Median() of nothing = %v, want 0", got)
	}
}

func TestHistogramsReportOnlyWhatCameSince(t *testing.T) {
	before := fleet.Histogram{{0.001, 100}, {0.002, 100}, {0.004, 100}, {math.Inf(1), 100}}
	now := fleet.Histogram{{0.001, 100}, {0.002, 150}, {0.004, 190}, {math.Inf(1), 200}}
	for q, want := range map[float64]float64{0.25: 0.0015, 0.5: 0.002, 0.7: 0.003, 0.99: 0.004} {
		if got := now.Since(before).Quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("Quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := now.Since(now).Quantile(0.5); got != 0 {
		t.Errorf("Quantile() of nothing = %v, want 0", got)
	}
}

func TestFitFindsWhatEachColumnCosts(t *testing.T) {
	x := [][]float64{{1, 0.5, 50}, {1, 1, 100}, {1, 5, 500}, {1, 5, 167}, {1, 5, 33}}
	y := make([]float64, len(x))
	for i, row := range x {
		y[i] = 2*row[0] + 0.3*row[1] + 0.07*row[2]
	}
	got, ok := fleet.Fit(x, y)
	for i, want := range []float64{2, 0.3, 0.07} {
		if !ok || math.Abs(got[i]-want) > 1e-6 {
			t.Fatalf("Fit() = %v, %v, want [2 0.3 0.07], true", got, ok)
		}
	}
}

func TestFitRefusesColumnsThatCannotBeDistinguished(t *testing.T) {
	for name, x := range map[string][][]float64{
		"at one pace":      {{1, 0.5, 50}, {1, 1, 100}, {1, 5, 500}},
		"of too few steps": {{1, 0.5, 50}},
		"of no step":       nil,
	} {
		if got, ok := fleet.Fit(x, make([]float64, len(x))); ok {
			t.Errorf("Fit() %s = %v, want none", name, got)
		}
	}
}
