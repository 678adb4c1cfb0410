package controlplane_test

import (
	"testing"

	"hostler.io/hostler/controlplane"
)

func TestValuesAreCounted(t *testing.T) {
	for text, want := range map[string][2]int{
		``:                                {0, 0},
		`{}`:                              {0, 0},
		`{"a":"x,y","b":"\",\\","c":","}`: {2, 0},
		`{"items":[{},{},{}]}`:            {2, 2},
		`{"items":[{"a":[1,2]},{"b":{"c":1,"d":2}}],"x":{"y":1,"z":2}}`: {5, 1},
		`{"metadata":{"a":1,"b":2},"items":[null,null]}`:                {3, 1},
		`[1,2,[3,4]]`: {3, 1},
	} {
		if values, items := controlplane.CountValues([]byte(text)); values != want[0] || items != want[1] {
			t.Errorf("CountValues(%s) = %d, %d, want %v", text, values, items, want)
		}
	}
}
