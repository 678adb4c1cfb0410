package conditions

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// identity is the user that runs a check.
type identity struct {
	name     string
	switched bool // differs from the agent's user
	uid, gid uint32
	groups   string // supplementary groups, separated by commas
}

// Nobody is the default user of checks.
const Nobody = "nobody"

// nobodyID is the ID of Nobody if the host does not define that user.
const nobodyID = 65534

// identityOf returns the identity of a user. An agent that is not root runs all checks as its own
// user.
func identityOf(name string) (identity, error) {
	if own := os.Geteuid(); own != 0 {
		u, err := user.LookupId(strconv.Itoa(own))
		if name == "" || err == nil && u.Username == name {
			return identity{name: strconv.Itoa(own)}, nil
		}
		return identity{}, errors.New("the agent does not run as root and cannot run checks as another user")
	}
	if name == "root" {
		return identity{name: name}, nil
	}
	wanted := name
	if wanted == "" {
		wanted = Nobody
	}
	u, err := user.Lookup(wanted)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown && name == "" {
		return identity{name: Nobody, switched: true, uid: nobodyID, gid: nobodyID}, nil
	}
	if err != nil {
		return identity{}, fmt.Errorf("no user %q on this host", wanted)
	}
	id := identity{name: wanted, switched: true}
	if id.uid, err = number(u.Uid); err != nil {
		return identity{}, err
	}
	if id.gid, err = number(u.Gid); err != nil {
		return identity{}, err
	}
	if wanted != Nobody {
		groups, err := u.GroupIds()
		if err != nil {
			return identity{}, fmt.Errorf("list groups of user %q: %w", wanted, err)
		}
		id.groups = strings.Join(groups, ",")
	}
	return id, nil
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

// credential returns the identity for the kernel, or nil for the agent's own.
func (i identity) credential() (*syscall.Credential, error) {
	if !i.switched {
		return nil, nil
	}
	c := &syscall.Credential{Uid: i.uid, Gid: i.gid}
	for text := range strings.SplitSeq(i.groups, ",") {
		if text == "" {
			continue
		}
		group, err := number(text)
		if err != nil {
			return nil, err
		}
		c.Groups = append(c.Groups, group)
	}
	return c, nil
}
