package configfile

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Duration is a length of time in the notation of Kubernetes: 90s, 5m, 1h30m.
type Duration time.Duration

// longestDuration is ten years. Several times a longer one could overflow, and become its opposite.
const longestDuration = 10 * 365 * 24 * time.Hour

// UnmarshalYAML reads a duration, and refuses a number without a unit.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return errors.New(noDuration(n))
	}
	switch {
	case v < 0:
		return fmt.Errorf("%s is negative", n.Value)
	case v > longestDuration:
		return fmt.Errorf("%s is longer than %s, the longest duration", n.Value, Duration(longestDuration))
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes the duration as a string.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// String omits zero minutes and seconds: 5m, not 5m0s.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Switch says whether hostler does a job: on, off, or auto, which depends on the host.
type Switch string

// The values of a Switch.
const (
	Auto Switch = "auto" // on, unless another program on this host does the job
	On   Switch = "true"
	Off  Switch = "false"
)

// UnmarshalYAML reads auto, true or false.
func (s *Switch) UnmarshalYAML(n *yaml.Node) error {
	switch v := Switch(n.Value); v {
	case Auto, On, Off:
		*s = v
		return nil
	}
	return fmt.Errorf("%q is none of auto, true, false", n.Value)
}

// MarshalYAML writes true and false as booleans.
func (s Switch) MarshalYAML() (any, error) {
	if b, err := strconv.ParseBool(string(s)); err == nil {
		return b, nil
	}
	return string(s), nil
}

// Quantity is an amount in the notation of Kubernetes, such as 500m or 1Gi, or "".
type Quantity string

// UnmarshalYAML reads a quantity, and refuses a negative one and one that overflows.
func (q *Quantity) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Value == "" {
		*q = ""
		return nil
	}
	v, err := resource.ParseQuantity(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		return errors.New(noQuantity(n, "not a quantity"))
	}
	switch {
	case v.Sign() < 0:
		return fmt.Errorf("%s is negative", n.Value)
	case v.Cmp(*resource.NewQuantity(math.MaxInt64, resource.DecimalSI)) >= 0:
		// ParseQuantity silently replaces a value that overflows by its maximum.
		return fmt.Errorf("%s is too large to count; it is to be less than 8Ei", n.Value)
	}
	*q = Quantity(n.Value)
	return nil
}

// Value returns the quantity, or zero if it is empty.
func (q Quantity) Value() resource.Quantity {
	if q == "" {
		return resource.Quantity{}
	}
	return resource.MustParse(string(q))
}

// NotWhole returns why a quantity is not a whole number of units, such as bytes, or "".
func (q Quantity) NotWhole() string { return inParts(string(q)) }

// Threshold is a quantity, or a percentage of the capacity.
type Threshold string

// UnmarshalYAML reads a quantity, or a percentage from 0 to 100.
func (t *Threshold) UnmarshalYAML(n *yaml.Node) error {
	number, percent := strings.CutSuffix(n.Value, "%")
	if !percent {
		if n.Kind == yaml.ScalarNode && n.Value == "" {
			return fmt.Errorf("is empty; write 0%% to switch it off")
		}
		q, err := resource.ParseQuantity(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			return errors.New(noQuantity(n, "neither a percentage, such as 10%, nor a quantity"))
		}
		if q.Sign() < 0 {
			return fmt.Errorf("%s is negative", n.Value)
		}
		if problem := inParts(n.Value); problem != "" {
			return errors.New(problem)
		}
		*t = Threshold(n.Value)
		return nil
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return fmt.Errorf("%q is not a percentage from 0%% to 100%%", n.Value)
	}
	*t = Threshold(n.Value)
	return nil
}
