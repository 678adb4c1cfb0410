package configfile

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The functions of this file explain why a value is invalid, and which value was probably meant.

const oneValue = "must be a single value"

// quoted reports whether a value is in quotes, which make it a string.
func quoted(n *yaml.Node) bool { return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 }

func noBool(n *yaml.Node) string {
	if quoted(n) && (n.Value == "true" || n.Value == "false") {
		return fmt.Sprintf("%q stands in quotes, which make it a text; write %s without them", n.Value, n.Value)
	}
	return fmt.Sprintf("%q is neither true nor false", n.Value)
}

// noInteger returns why n is not an integer of that many bits.
func noInteger(n *yaml.Node, bits int) string {
	number, err := strconv.ParseInt(n.Value, 0, bits)
	whole, percent := strings.CutSuffix(n.Value, "%")
	_, noWhole := strconv.ParseInt(whole, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return n.Value + " is too large a number, or too small a one"
	case quoted(n) && err == nil:
		return fmt.Sprintf("%q stands in quotes, which make it a text; write %d without them", n.Value, number)
	case err == nil:
		return fmt.Sprintf("%q is not written as a number is here; write %d", n.Value, number)
	case percent && noWhole == nil:
		return fmt.Sprintf("%q is not a whole number; write %s, without the percent sign", n.Value, whole)
	}
	return fmt.Sprintf("%q is not a whole number", n.Value)
}

// durationPart matches a number and a unit, in any spelling.
var durationPart = regexp.MustCompile(`(\d+(?:\.\d+)?|\.\d+)\s*([a-zA-Zµ]+)\s*`)

// timeUnits maps common names of units to their length.
func timeUnits() map[string]time.Duration {
	const day = 24 * time.Hour
	units := map[string]time.Duration{"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond}
	for unit, names := range map[time.Duration]string{
		time.Second: "s sec secs second seconds", time.Minute: "m min mins minute minutes", time.Hour: "h hr hrs hour hours",
		day: "d day days", 7 * day: "w week weeks",
	} {
		for _, name := range strings.Fields(names) {
			units[name] = unit
		}
	}
	return units
}

func noDuration(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return oneValue + ", such as 90s or 5m"
	case n.Value == "":
		return "is empty; write a duration with its unit, such as 90s or 5m"
	}
	const units = "its units are h, m, s and ms"
	text := strings.TrimSpace(n.Value)
	if text == "" || durationPart.ReplaceAllString(text, "") != "" {
		return fmt.Sprintf("%q is not a duration; write it with its unit, such as 90s or 5m", n.Value)
	}
	var meant float64
	for _, part := range durationPart.FindAllStringSubmatch(text, -1) {
		unit, known := timeUnits()[strings.ToLower(part[2])]
		if !known {
			return fmt.Sprintf("%q is not a duration: there is no unit %s; %s", n.Value, part[2], units)
		}
		number, _ := strconv.ParseFloat(part[1], 64) // infinite if it is too large
		meant += number * float64(unit)
	}
	const longest = 1<<63 - 1
	if meant >= longest {
		return fmt.Sprintf("%s is too long to count; the longest is %dh", n.Value, time.Duration(longest)/time.Hour)
	}
	return fmt.Sprintf("%q is not a duration: %s; did you mean %s?", n.Value, units, Duration(meant))
}

// quantityPart matches a number and a suffix, in any spelling.
var quantityPart = regexp.MustCompile(`^(\d+(?:\.\d+)?)\s*([a-zA-Z]*)$`)

// noQuantity returns why n is not a quantity. wrong says what it is instead.
func noQuantity(n *yaml.Node, wrong string) string {
	if n.Kind != yaml.ScalarNode {
		return oneValue + ", such as 500m, 2 or 1Gi"
	}
	if m := quantityPart.FindStringSubmatch(strings.TrimSpace(n.Value)); m != nil {
		suffix := strings.TrimSuffix(strings.ToLower(m[2]), "b") // quantities are in bytes anyway
		suffix = strings.ToUpper(suffix[:min(1, len(suffix))]) + suffix[min(1, len(suffix)):]
		if suffix == "K" {
			suffix = "k" // k is 1000; Ki is 1024
		}
		for _, meant := range []string{m[1] + m[2], m[1] + suffix} {
			if _, err := resource.ParseQuantity(meant); err == nil {
				return fmt.Sprintf("%q is %s; did you mean %s?", n.Value, wrong, meant)
			}
		}
	}
	return fmt.Sprintf("%q is %s; write it as 500m, 2 or 1Gi", n.Value, wrong)
}

// inParts returns why a quantity is not a whole number of units, such as bytes. In Kubernetes, 500m
// is half a byte; the author probably means 500 megabytes. A fraction such as 1.3Gi is allowed.
func inParts(text string) string {
	for suffix, part := range map[string]string{"m": "thousandths", "u": "millionths", "n": "billionths"} {
		if number, found := strings.CutSuffix(text, suffix); found {
			return fmt.Sprintf("%q is a number of %s, as CPUs alone are counted; did you mean %sM, %[3]sMi or %[3]s?", text, part, number)
		}
	}
	return ""
}
