// Package trust decides which files and processes of a host hostler trusts: those that only root
// can change. Otherwise another user could control hostler, which runs as root. A file is checked
// on the descriptor that is then read.
//
// It owns this decision for all of hostler. The caller acts on it.
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

// openness returns how users other than root can change a file, or the content of a folder; empty
// if they cannot. rest is how many names of the path follow. For a folder on the path the sticky
// bit is enough. It is also enough for the last folder if only a group can write there, as for the
// store of NixOS: others cannot replace files of root.
func openness(info fs.FileInfo, rest int) string {
	if why := foreign(info); why != "" {
		return why
	}
	mode := info.Mode()
	// Group root does not count as root: processes of a container whose image has a numeric user
	// are in it. If a file has an access control list, the group bits are the maximum for its
	// entries (acl(5)).
	sticky := mode&fs.ModeSticky != 0
	if mode.Perm()&0o022 == 0 || sticky && (rest > 1 || rest == 1 && mode.Perm()&0o002 == 0) {
		return ""
	}
	return fmt.Sprintf("is writable by users other than root (%v)", mode)
}
