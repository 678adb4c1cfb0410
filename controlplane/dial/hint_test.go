package dial

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"hostler.io/hostler/internal/trust"
)

func TestFileHint(t *testing.T) {
	t.Parallel()
	denied := fmt.Errorf("store.etcd.tls: %w", &fs.PathError{Op: "open", Path: "/etc/hostler/etcd.key", Err: fs.ErrPermission})
	for name, test := range map[string]struct {
		err  error
		root bool
		want string
	}{
		"root may not":   {denied, true, "make it readable for root"},
		"the server":     {denied, false, "the server's own user cannot read it: add LoadCredential=etcd.key:/etc/hostler/etcd.key to a drop-in of hostler-server.service, and set the key to /run/credentials/hostler-server.service/etcd.key"},
		"of no file":     {fs.ErrPermission, false, "the server's own user cannot read it: add LoadCredential=NAME:PATH to a drop-in of hostler-server.service, and set the key to /run/credentials/hostler-server.service/NAME"},
		"it is missing":  {fs.ErrNotExist, false, "create the file, or correct its name; hostler reloads it"},
		"others own it":  {&trust.Error{Hint: "chown root"}, true, "chown root"},
		"it has no PEM":  {errors.New("no PEM"), true, "correct the file; hostler reloads it"},
		"server, no PEM": {errors.New("no PEM"), false, "correct the file; hostler reloads it"},
	} {
		if got := fileHint(test.err, test.root); got != test.want {
			t.Errorf("%s: fileHint() = %q, want %q", name, got, test.want)
		}
	}
}
