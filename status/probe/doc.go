// Package probe reads the host: /proc, /sys, a few files of /etc, statfs and netlink. Only this
// package knows where the kernel has a value, and only this package uses cadvisor.
//
// It measures, and does not judge: it has no thresholds, does not choose among addresses, and uses
// no clock. If a host lacks something (DMI, NUMA, a limit), the value is empty without an error. If
// something should exist and cannot be read, an error says why.
//
// It reads /proc, /sys and /etc below a root folder, so that tests can use a captured tree of
// another machine. From cadvisor it uses sysinfo with its own sysfs. The rest of cadvisor
// hard-codes paths, uses the machine ID as system UUID on hosts without DMI, and registers
// command-line flags when it is imported.
package probe
