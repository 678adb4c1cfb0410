// Package machine boots throwaway Debians for scenarios that need a real systemd
// as PID 1: with logind, D-Bus, containerd, and hostler installed as its unit. A
// machine survives reboots with its disk, and is gone with the test.
//
// There are two beds. A VM has a kernel of its own, in QEMU without any help of
// the host's processor: everything in it is real, and slow. A Container is
// systemd-nspawn: it boots at once and runs at native speed, but shares the
// host's kernel, has no cgroup controllers and no power button.
//
// It owns the beds and what a test can do to a machine; its roots are debian's,
// and what is said to the guest program, which runs commands and pods inside, is
// wire's. It refuses to judge hostler: scenarios do.
// A test binary calls Main from its TestMain, and each test Boot:
//
//	m := machine.Boot(t, machine.Options{Release: machine.Debian12, Bed: machine.VM})
//	m.Deploy(machine.Pod{Name: "web"}, machine.Pod{Name: "db", Critical: true})
//	m.GoesDown("systemctl reboot")
//	if !m.Work().TermBefore("web", "db") { ... }
package machine
