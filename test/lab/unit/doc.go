// Package unit runs programs in the lab as systemd runs a service: behind what its unit file
// takes from it. It owns a service manager inside the lab, which reads the unit file as it
// will be installed and carries its directives out, and the little that is said otherwise
// there, each with its reason. It refuses to carry out a directive itself.
//
// The manager is systemd as a user's (systemd --user), run by root: one of the system's
// has to be PID 1. Having all rights, it makes no user namespace for a sandbox, and both carry
// out alike what a unit says. Only what goes by the device controller of cgroups, which
// PrivateDevices= has as a second line behind a /dev without devices, does a user's manager
// leave out where the host has cgroups of version 1.
//
// systemd hands what it starts neither descriptors nor an environment of whoever asks for
// the start, nor is a test the one who waits for it: so a unit's own process is
// test/lab/unit/spawn, which starts the program that it is told of over a socket.
package unit
