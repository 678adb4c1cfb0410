// Package trust decides which files and processes of a host hostler trusts: those that only root
// can change. Otherwise another user could control hostler, which runs as root. A file is checked
// on the descriptor from which it is then read.
//
// All of hostler uses this decision. The caller acts on it.
package trust

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Error says how users other than root can change a file that hostler obeys.
type Error struct {
	Subject string // the file, the folder or the link, such as "/etc/hostler/hostler.yaml"
	Why     string // such as "belongs to user 1000, and not to root"
	Hint    string // how a person fixes it
}

func (e *Error) Error() string { return e.Subject + " " + e.Why }

// IsOwn reports whether a user is root, or the user that runs hostler.
func IsOwn(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// foreign returns the owner of a file as a reason not to trust it, or "" if the owner is trusted.
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

// openness returns how users other than root can change a file or the content of a folder, or "" if
// they cannot. rest is how many path elements follow. For a folder on the path, the sticky bit is
// enough protection. It is also enough for the last folder if only a group can write there, as in
// the store of NixOS: other users cannot replace root's files there.
func openness(info fs.FileInfo, rest int) string {
	if why := foreign(info); why != "" {
		return why
	}
	mode := info.Mode()
	// Group root counts as other users: processes of a container whose image has a numeric user are
	// in it. If a file has an access control list, the group bits are the maximum for its entries
	// (acl(5)).
	sticky := mode&fs.ModeSticky != 0
	if mode.Perm()&0o022 == 0 || sticky && (rest > 1 || rest == 1 && mode.Perm()&0o002 == 0) {
		return ""
	}
	return fmt.Sprintf("is writable by users other than root (%v)", mode)
}
