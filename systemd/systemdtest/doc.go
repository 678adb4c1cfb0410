// Package systemdtest runs a logind for tests: a strict fake that needs only Go, and the cases that
// the fake and a real systemd-logind both pass. Its Manager is the systemd below either of them.
//
// The fakes speak real D-Bus on a real socket and return real fifos. They check destinations,
// paths, interfaces, names, signatures and values as strictly as the originals. They implement only
// what hostler uses, and do not judge what hostler does.
package systemdtest
