// Package systemdtest runs a logind for tests: a strict fake that needs nothing
// but Go, and the cases that the fake and a real systemd-logind both pass.
//
// The fake speaks real D-Bus on a real socket, hands out real fifos, and is as
// particular as the original about destinations, paths, interfaces, names,
// signatures and values. It owns no opinion about what hostler should do with
// them, and knows only what hostler uses.
package systemdtest
