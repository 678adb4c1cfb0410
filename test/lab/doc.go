// Package lab is the test bed: a real containerd, a real dbus-daemon and a real
// systemd-logind in namespaces of their own, on a machine that needs to have
// nothing but Go and apt.
//
// It owns the namespaces, the fetching of daemons that are not installed, their
// private configuration, and the images and pods that tests and the demo put
// into them. It refuses to touch the host: no socket of a host daemon can be
// reached from inside, nothing is installed, and when the process that entered
// the lab ends, for whatever reason, everything inside ends with it.
//
// A test binary enters with Main from its TestMain, a program with Enter. Both
// need root. Of hostler the package uses only systemdtest's service manager, which
// runs none of the code under test: so the bed does not share the faults of what is
// tested on it.
package lab
