package trust

import (
	"fmt"
	"io/fs"
	"strings"
)

// ReadSecret reads a password or token as ReadRegularFile reads a file, without space around it. It fails if all
// users can read the file, or if the file is empty.
func ReadSecret(path string) (string, error) {
	const anyone fs.FileMode = 0o004
	f, err := Open(path)
	if err != nil {
		return "", err
	}
	if info, err := f.Stat(); err != nil || info.Mode()&anyone != 0 {
		return "", closing(f, fmt.Errorf("all users can read %s: run `chmod o-r %[1]s`, then replace the secret", path))
	}
	text, err := readAll(f, nil)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty: write the secret to it", path)
	}
	return secret, nil
}
