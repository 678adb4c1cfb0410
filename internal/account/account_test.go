package account

import (
	"errors"
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	a, err := Lookup("daemon")
	if err != nil || a.Name != "daemon" || a.UID != 1 || a.GID != 1 {
		t.Errorf("Lookup(daemon) = %+v, %v, want user 1 of group 1", a, err)
	}
	_, err = Lookup("hostler-none")
	if missing, ok := errors.AsType[*Error](err); !ok || !strings.Contains(missing.Why, "hostler-none") || missing.Hint == "" {
		t.Errorf("Lookup(hostler-none) = %v, want that it is missing, with a hint", err)
	}
}
