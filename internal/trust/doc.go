// Package trust decides whose word counts on a host: which files, processes and connections are
// root's alone, so that nobody else can make hostler, which is root, do as they want. What is
// looked at is what is then used: a file is checked on the descriptor that is read.
//
// It owns that decision for all of hostler. It refuses to act upon it: who asks says what follows.
package trust

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Error says that others than root can change something that hostler obeys, and how.
type Error struct {
	Subject string // such as "/etc/hostler/hostler.yaml" or "process kubelet, pid 812"
	Why     string // such as "belongs to user 1000, and not to root"
	Mend    string // what a person does about it; may be empty
}

func (e *Error) Error() string { return e.Subject + " " + e.Why }

// isOwn tells root, and hostler's own user where that is another, from others.
func isOwn(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// foreign says that a file belongs to somebody else; empty if it does not.
func foreign(info fs.FileInfo) string {
	owner, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return "has an owner that is not known"
	}
	if !isOwn(owner.Uid) {
		return fmt.Sprintf("belongs to user %d, and not to root", owner.Uid)
	}
	return ""
}

// openness says how others than root can change a file, or what is in a folder; empty if they
// cannot. above is a folder that only leads to another one, for which the sticky bit is enough.
func openness(info fs.FileInfo, above bool) string {
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
