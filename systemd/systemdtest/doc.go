// Package systemdtest runs a logind for tests: a strict fake that needs nothing
// but Go, and the cases that the fake and a real systemd-logind both pass. Its
// Manager is systemd below either of them.
//
// The fakes speak real D-Bus on a real socket, return real fifos, and are as
// particular as the original about destinations, paths, interfaces, names,
// signatures and values. They own no opinion about what hostler should do with
// them, and know only what hostler uses.
package systemdtest
