// Package account finds the users that run checks and exec plugins for an agent of root.
package account

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
)

// Unprivileged is the user for programs that need no rights. It is hostler's own: other programs and
// containers use user nobody, too, and a user can read the memory of its processes and kill them.
const Unprivileged = "hostler-exec"

// Account is a user of this host.
type Account struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32 // the supplementary groups
}

// Error says that this host lacks a user, or does not show it.
type Error struct {
	Why  string
	Hint string
}

func (e *Error) Error() string { return e.Why }

// Lookup returns a user by its name.
func Lookup(name string) (Account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}, &Error{Why: fmt.Sprintf("no user %q on this host", name), Hint: "run useradd --system --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin " + name}
	}
	groups, err := u.GroupIds()
	if err != nil {
		return Account{}, fmt.Errorf("list groups of user %q: %w", name, err)
	}
	a := Account{Name: name}
	var errs [2]error
	a.UID, errs[0] = number(u.Uid)
	a.GID, errs[1] = number(u.Gid)
	for _, text := range groups {
		group, err := number(text)
		if err != nil {
			return Account{}, err
		}
		a.Groups = append(a.Groups, group)
	}
	return a, errors.Join(errs[:]...)
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}
