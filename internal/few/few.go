// Package few shortens long lists of names in messages.
package few

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Names lists the first most names, and says how many more there are.
func Names(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Errors joins the first most errors, and says how many more there are. None may be nil.
func Errors(errs []error, most int) error {
	if more := len(errs) - most; more > 0 {
		errs = append(slices.Clip(errs[:most]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}
