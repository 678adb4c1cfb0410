package main

import (
	"fmt"
	"os"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// manager becomes a service manager in the cgroup with this file of members. It gets its own /tmp
// and /var/tmp, where systemd creates the folders of PrivateTmp=. So none stay on the host.
func manager(program, members string) error {
	goruntime.LockOSThread() // the thread executes the program
	if err := os.WriteFile(members, fmt.Append(nil, os.Getpid()), 0o644); err != nil {
		return fmt.Errorf("join a cgroup: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	// Mounts of the lab appear here at once, but not the other way round.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("follow the lab's mounts: %w", err)
	}
	for _, folder := range []string{"/tmp", "/var/tmp"} {
		if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
			return fmt.Errorf("mount %s: %w", folder, err)
		}
	}
	return unix.Exec(program, []string{program, "--user", "--unit=basic.target"}, os.Environ())
}
