//go:build integration

package trust

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// A file, a folder or a link of another user is refused, whatever its mode.
func TestFilesOfOtherUsersAreRefused(t *testing.T) {
	const nobody = 65534
	for name, c := range map[string]struct {
		lay func(folder string) error
		at  string // the path that the error names, below the folder
	}{
		"a file":     {func(f string) error { return os.Chown(f+"/x", nobody, nobody) }, "/x"},
		"its folder": {func(f string) error { return os.Chown(f, nobody, nobody) }, ""},
		"a link": {func(f string) error {
			return errors.Join(os.Rename(f+"/x", f+"/y"), os.Symlink("y", f+"/x"), os.Lchown(f+"/x", nobody, nobody))
		}, "/x"},
		"a link to theirs": {func(f string) error {
			return errors.Join(os.Rename(f+"/x", f+"/y"), os.Symlink("y", f+"/x"), os.Chown(f+"/y", nobody, nobody))
		}, "/y"},
		"a link through their folder": {func(f string) error {
			return errors.Join(os.Rename(f+"/x", f+"/y"), os.Mkdir(f+"/o", 0o755), os.Chown(f+"/o", nobody, nobody), os.Symlink("o/../y", f+"/x"))
		}, "/o"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir() + "/folder"
			check(t, os.Mkdir(folder, 0o755), os.WriteFile(folder+"/x", []byte("text"), 0o600), c.lay(folder))
			for of, read := range map[string]func() error{
				"ReadFile": func() error { _, err := ReadFile(folder + "/x"); return err },
				"Open": func() error {
					f, err := Open(folder + "/x")
					if err == nil {
						_ = f.Close()
					}
					return err
				},
				"Path": func() error { _, _, err := Path(folder + "/x"); return err },
			} {
				err := read()
				if refused, ok := errors.AsType[*Error](err); !ok || refused.Subject != folder+c.at || !strings.Contains(refused.Why, "belongs to user 65534") || refused.Hint == "" {
					t.Errorf("%s = %v, want %s%s refused, with a hint", of, err, folder, c.at)
				}
			}
		})
	}
}
