// Package lab is the test bed: a real containerd, a real dbus-daemon and a real systemd-logind in
// their own namespaces. The machine needs only Go and apt.
//
// It owns the namespaces, the download of daemons that are not installed, their configuration, and
// the images and pods of tests and of the demo. It changes nothing on the host: inside, no socket
// of a host daemon can be reached, and nothing is installed. When the process that entered the lab
// ends, for any reason, everything inside ends with it.
//
// A test binary enters the lab with Main from its TestMain, a program with Enter. Both need root.
// The package uses no code of hostler, so that a bug of the tested code cannot affect it. The only
// exception is the service manager of systemdtest, which runs none of the tested code.
package lab
