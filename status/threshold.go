package status

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Threshold is how much of something must be left: an amount, or a share of the total. Its notation
// is that of Kubernetes' eviction thresholds: "100Mi" or "10%". The zero value is 0, and no value
// is below it.
type Threshold struct {
	amount  int64
	percent float64
	text    string // the original text, for messages
}

// ParseThreshold parses a quantity, which must not be negative, or a percentage
// between 0% and 100%.
func ParseThreshold(text string) (Threshold, error) {
	if digits, isPercent := strings.CutSuffix(text, "%"); isPercent {
		percent, err := strconv.ParseFloat(digits, 64)
		if err != nil || math.IsNaN(percent) {
			return Threshold{}, fmt.Errorf("threshold %q is not a percentage; write it like 10%%", text)
		}
		if percent < 0 || percent > 100 {
			return Threshold{}, fmt.Errorf("threshold %q is outside 0%% to 100%%", text)
		}
		return Threshold{percent: percent, text: text}, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return Threshold{}, fmt.Errorf("threshold %q is neither a quantity like 100Mi nor a percentage like 10%%", text)
	}
	if quantity.Sign() < 0 {
		return Threshold{}, fmt.Errorf("threshold %q is negative", text)
	}
	if quantity.CmpInt64(math.MaxInt64) >= 0 {
		return Threshold{}, fmt.Errorf("threshold %q is too large", text)
	}
	return Threshold{amount: quantity.Value(), text: text}, nil
}

// Amount returns a threshold of that amount.
func Amount(n uint64) Threshold {
	return Threshold{amount: int64(n), text: humanBytes(n)}
}

// Of returns the threshold for a total, in the total's unit.
func (t Threshold) Of(whole uint64) uint64 {
	if t.isPercent() {
		// Split into two parts, because a float has too few digits for large filesystems.
		hundredth, rest := whole/100, whole%100
		return uint64(float64(hundredth)*t.percent) + uint64(float64(rest)*t.percent/100)
	}
	return uint64(t.amount)
}

func (t Threshold) isPercent() bool { return strings.HasSuffix(t.text, "%") }

// String returns the original text.
func (t Threshold) String() string {
	if t.text == "" {
		return "0"
	}
	return t.text
}

// MarshalText returns the original text.
func (t Threshold) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText is ParseThreshold.
func (t *Threshold) UnmarshalText(text []byte) error {
	parsed, err := ParseThreshold(string(text))
	if err == nil {
		*t = parsed
	}
	return err
}
