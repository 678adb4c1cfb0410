// Package e2e holds what only the whole can show: the hostler binary as users
// get it, against a real containerd, a real dbus-daemon and a real
// systemd-logind in the lab's namespaces, and behind all that hostler.service takes
// from the agent. It has nothing but tests, behind the build tag integration, and
// needs root.
package e2e
