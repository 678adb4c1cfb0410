// Package e2e has tests of the whole program: the released hostler binary with a real containerd, a
// real dbus-daemon and a real systemd-logind in the lab's namespaces, under all restrictions of
// hostler.service. It has only tests, with the build tag integration, and needs root.
package e2e
