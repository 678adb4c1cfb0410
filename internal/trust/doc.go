// Package trust decides which files and processes of a host hostler obeys: those that nobody but
// root can change, so that no other user makes hostler, which runs as root, do what they want. A file
// is checked on the descriptor that is then read.
//
// It owns that decision for all of hostler. It refuses to act on it: the caller does.
package trust

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Error says that others than root can change a file that hostler obeys, and how.
type Error struct {
	Subject string // the file, the folder or the link, such as "/etc/hostler/hostler.yaml"
	Why     string // such as "belongs to user 1000, and not to root"
	Hint    string // how a person fixes it
}

func (e *Error) Error() string { return e.Subject + " " + e.Why }

// IsOwn reports whether a user is root, or the one whom hostler runs as.
func IsOwn(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// foreign says that a file belongs to another client; empty if it does not.
func foreign(info fs.FileInfo) string {
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return "has an unknown owner"
	}
	if !IsOwn(owner.Uid) {
		return fmt.Sprintf("belongs to user %d, not to root", owner.Uid)
	}
	return ""
}

// openness says how others than root can change a file, or what is in a folder; empty if they
// cannot. rest is how many names of the path are left to go. For a folder that only leads to another
// one the sticky bit is enough, and for the last one too if only a group can write there, as into
// the store of NixOS: what is root's stays.
func openness(info fs.FileInfo, rest int) string {
	if why := foreign(info); why != "" {
		return why
	}
	mode := info.Mode()
	// The group root is no root: processes of a container whose image names a user by
	// number are in it. And where a file has an access control list, what stands in place
	// of the group is the most that anybody in that may do (acl(5)).
	sticky := mode&fs.ModeSticky != 0
	if mode.Perm()&0o022 == 0 || sticky && (rest > 1 || rest == 1 && mode.Perm()&0o002 == 0) {
		return ""
	}
	return fmt.Sprintf("is writable by users other than root (%v)", mode)
}
