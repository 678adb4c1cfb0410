package conditions

import (
	"errors"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"hostler.io/hostler/internal/account"
)

// root is the user whose checks have the rights of the agent.
const root = "root"

// userOf returns the user that runs a check. An agent that is not root runs all checks as its own
// user. name is empty if the check names no user, and fallback is the user of such checks.
func userOf(name, fallback string) (string, error) {
	if own := os.Geteuid(); own != 0 {
		u, err := user.LookupId(strconv.Itoa(own))
		if name == "" || err == nil && u.Username == name {
			return strconv.Itoa(own), nil
		}
		return "", errors.New("the agent does not run as root and cannot run checks as another user")
	}
	if name == "" {
		name = fallback
	}
	if name == root {
		return name, nil
	}
	_, err := account.Lookup(name)
	return name, err
}

// isSwitched reports whether a check runs as another user than the agent.
func (p Program) isSwitched() bool { return os.Geteuid() == 0 && p.User != root }

// credential returns the user of a check for the kernel, or nil for the agent's own.
func (p Program) credential() (*syscall.Credential, error) {
	if !p.isSwitched() {
		return nil, nil
	}
	a, err := account.Lookup(p.User)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: a.UID, Gid: a.GID, Groups: a.Groups}, nil
}
