// Package attempt tries operations that units forbid, with system calls that change nothing. It
// does not judge the results.
package attempt

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Results are the errors of the kernel for each attempt, or "" if it succeeded.
type Results map[string]string

// All makes all attempts, with two files of the lab: seen is only visible in the lab's folders for
// temporary files, and changed may be changed.
func All(seen, changed string) Results {
	r := Results{}
	for name, try := range map[string]func() error{
		"see the lab's /tmp": func() error {
			_, err := os.Stat(seen)
			return err
		},
		"set a file's setuid bit": func() error { return unix.Chmod(changed, 0o4755) },
		"write to /usr":           writable("/usr"),
		"write to /etc":           writable("/etc"),
		"write to /var/lib":       writable("/var/lib"),
		"write to its state":      writable("/var/lib/hostler"),
		"write to /run":           writable("/run"),
		"write to systemd's /run": writable("/run/systemd"),
		"write to logind's /run":  writable("/run/systemd/logind.conf.d"),
		"write to /var/log":       writable("/var/log"),
		"write to a user's /run":  writable("/run/user"),
		"set a kernel's tunable":  writable("/proc/sys/kernel/panic"),
		"write to cgroups":        writable("/sys/fs/cgroup"),
		"unload a kernel module":  func() error { return unix.DeleteModule("none", unix.O_NONBLOCK) },
		"read the kernel's log": func() error {
			const sizeOfBuffer = 10
			_, err := unix.Klogctl(sizeOfBuffer, nil)
			return err
		},
		// The kernel does not allow anybody to set this clock.
		"set a clock": func() error { return unix.ClockSettime(unix.CLOCK_MONOTONIC, &unix.Timespec{}) },
		"become of another personality": func() error {
			const linux32 = 0x0008
			_, _, errno := syscall.Syscall(unix.SYS_PERSONALITY, linux32, 0, 0)
			return asError(errno)
		},
		// This priority does not exist.
		"be scheduled in real time": func() error {
			var priority int32
			_, _, errno := syscall.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_FIFO, uintptr(unsafe.Pointer(&priority)))
			return asError(errno)
		},
		"change its priority": func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 1) },
		"make a namespace":    func() error { return unix.Unshare(unix.CLONE_NEWUTS) },
		"open a packet socket": func() error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		},
		// This folder does not exist.
		"mount": func() error { return unix.Mount("none", "/none/of/the/kind", "tmpfs", 0, "") },
	} {
		r[name] = errorText(try)
	}
	return r
}

func writable(path string) func() error {
	return func() error { return unix.Access(path, unix.W_OK) }
}

func asError(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// errorText returns the name of the kernel's error; "" if there is none. A thread that an attempt
// has changed ends.
func errorText(try func() error) string {
	result := make(chan error, 1)
	go func() {
		goruntime.LockOSThread()
		result <- try()
	}()
	err := <-result
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	if err != nil {
		return fmt.Sprint(err)
	}
	return ""
}
