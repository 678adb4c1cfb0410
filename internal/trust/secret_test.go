package trust_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/internal/trust"
)

func TestReadSecret(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"a secret":                 {"s3cret\n", 0o600, "s3cret"},
		"for the group":            {"s3cret", 0o640, "s3cret"},
		"one that others can read": {"s3cret", 0o644, "all users can read"},
		"an empty one":             {" \n", 0o600, "is empty"},
	} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		secret, err := trust.ReadSecret(path)
		if valid := err == nil; valid && secret != c.want || !valid && !strings.Contains(err.Error(), c.want) {
			t.Errorf("ReadSecret() of %s = %q, %v, want %q", name, secret, err, c.want)
		}
	}
	if _, err := trust.ReadSecret("/no/such/file"); !os.IsNotExist(err) {
		t.Errorf("ReadSecret() of no file = %v, want that it does not exist", err)
	}
}
