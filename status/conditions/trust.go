package conditions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxLinks is how many links are followed to one file, as the kernel does.
const maxLinks = 40

// untrustedError tells that others than root may change what root would run.
type untrustedError struct {
	path string // of the file or the folder
	why  string
}

func (e *untrustedError) Error() string { return e.path + " " + e.why }

// trusted follows a path, link by link, and returns where it leads if nobody but root,
// or the agent's own user, may change the file there or put another in its place:
// neither the file nor a folder on the way, nor one that a link on the way lies in. Of a
// folder with the sticky bit, such as /tmp, others may not take away what is not theirs.
func trusted(path string) (real string, info fs.FileInfo, err error) {
	rest := strings.Split(filepath.Clean(path), "/")[1:]
	at, links := "/", 0
	info, err = os.Lstat(at)
	for {
		if err != nil {
			return "", nil, err
		}
		if len(rest) > 0 && !info.IsDir() {
			return "", nil, &fs.PathError{Op: "look at", Path: at, Err: syscall.ENOTDIR}
		}
		if why := open(info, len(rest) > 1); why != "" {
			return "", nil, &untrustedError{at, why}
		}
		if len(rest) == 0 {
			return at, info, nil
		}
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		if info, err = os.Lstat(next); err != nil || info.Mode().Type() != fs.ModeSymlink {
			at = next
			continue
		}
		if why := foreign(info); why != "" { // who may lead it elsewhere
			return "", nil, &untrustedError{next, why}
		}
		if links++; links > maxLinks {
			return "", nil, &fs.PathError{Op: "follow", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(at, target)
		}
		rest = append(strings.Split(filepath.Clean(target), "/")[1:], rest...)
		rest = slices.DeleteFunc(rest, func(s string) bool { return s == "" })
		at = "/"
		if info, err = os.Lstat(at); err != nil {
			return "", nil, err
		}
	}
}

// foreign says that a file belongs to somebody else than root or the agent's own user.
func foreign(info fs.FileInfo) string {
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return "has an owner that is not known"
	}
	if owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Sprintf("belongs to user %d, and not to root", owner.Uid)
	}
	return ""
}

// open says how others than root can change a file, or what is in a folder. above is a
// folder that only leads to another one, for which the sticky bit is enough.
func open(info fs.FileInfo, above bool) string {
	if why := foreign(info); why != "" {
		return why
	}
	mode := info.Mode()
	// The group root is no root: processes of a container whose image names a user by
	// number are in it. And where a file has an access control list, what stands in place
	// of the group is the most that anybody in that may do (acl(5)).
	if mode.Perm()&0o022 == 0 || above && mode&fs.ModeSticky != 0 {
		return ""
	}
	return fmt.Sprintf("may be written by others than root (%v)", mode)
}

// identity is as whom a check runs.
type identity struct {
	name     string
	switched bool // is another than the agent's own
	uid, gid uint32
	groups   string // supplementary ones, by commas
}

// Nobody is as whom a check runs that names no user.
const Nobody = "nobody"

// nobodyID is its number where the host has no name for it.
const nobodyID = 65534

// identityOf finds the user whom a check names. An agent that is not root itself runs
// all of them as who it is.
func identityOf(name string) (identity, error) {
	if own := os.Geteuid(); own != 0 {
		u, err := user.LookupId(strconv.Itoa(own))
		if name == "" || err == nil && u.Username == name {
			return identity{name: strconv.Itoa(own)}, nil
		}
		return identity{}, errors.New("the agent does not run as root, and can run nothing as somebody else")
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
			return identity{}, fmt.Errorf("the groups of user %q: %w", wanted, err)
		}
		id.groups = strings.Join(groups, ",")
	}
	return id, nil
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

// credential says it in the kernel's words; nil for the agent's own.
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
