package slots

import (
	"fmt"
	"strconv"
	"strings"
)

// Part is a number of Nodes, or a percentage of all Nodes.
type Part struct {
	number  int
	percent bool
}

// ParsePart reads a number such as 1, or a percentage from 0% to 100%.
func ParsePart(text string) (Part, error) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || percent && n > 100 {
		return Part{}, fmt.Errorf("%q is neither a number of Nodes, such as 1, nor a percentage, such as 10%%", text)
	}
	return Part{int(n), percent}, nil
}

// Of returns the number for a group of all Nodes. A percentage is rounded down.
func (p Part) Of(all int) int {
	if p.percent {
		return all * p.number / 100
	}
	return p.number
}

// String is the part as it is configured.
func (p Part) String() string {
	if p.percent {
		return strconv.Itoa(p.number) + "%"
	}
	return strconv.Itoa(p.number)
}
