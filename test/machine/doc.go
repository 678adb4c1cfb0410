// Package machine boots throwaway Debians for scenarios that need a real systemd as PID 1: with
// logind, D-Bus, containerd, and hostler installed with its unit. A machine keeps its disk across
// reboots, and is removed with the test.
//
// There are two beds. A VM has its own kernel, in QEMU without hardware virtualization: everything
// in it is real, and slow. A Container is systemd-nspawn: it boots at once and runs at native
// speed. But it shares the host's kernel, and has no cgroup controllers and no power button.
//
// The package owns the beds and what a test can do with a machine. Package debian owns the roots,
// and package wire the messages to the guest program, which runs commands and pods inside.
// Scenarios judge hostler; this package does not.
//
// A test binary calls Main from its TestMain, and each test calls Boot:
// A test binary calls Main from its TestMain, and each test Boot:
//
//	m := machine.Boot(t, machine.Options{Release: machine.Debian12, Bed: machine.VM})
//	m.Deploy(machine.Pod{Name: "web"}, machine.Pod{Name: "db", Critical: true})
//	m.GoesDown("systemctl reboot")
//	if !m.Work().TermBefore("web", "db") { ... }
package machine
