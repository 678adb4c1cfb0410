// Package probe reads the host: /proc, /sys, a few files of /etc, statfs and
// netlink. It is the only place that knows where the kernel keeps a figure, and
// the only one that knows cadvisor.
//
// It measures and refuses to judge: no thresholds, no choice among addresses,
// nothing that needs a time. What a host lacks (DMI, NUMA, a limit) returns
// empty and is no error; what should be there and cannot be read says why.
//
// Everything under /proc, /sys and /etc is read below a root folder, so that a
// captured tree of another machine reads like this one. Of cadvisor it calls
// sysinfo over a sysfs of its own: the rest of cadvisor hard-codes its paths,
// takes the machine ID for a system UUID where there is no DMI, and registers
// command-line flags as a side effect of being imported.
package probe
