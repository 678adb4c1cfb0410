// Package few shortens long lists of names in messages.
package few

import (
	"fmt"
	"strings"
)

// Names lists the first most names, and says how many more there are.
func Names(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
