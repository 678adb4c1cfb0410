// Package unit runs programs in the lab as systemd runs a service: with all restrictions of its
// unit file. It owns a service manager inside the lab, which reads the unit file unchanged and
// applies its directives. It also owns the few exceptions, each with its reason. It applies no
// directive itself.
//
// The manager is the systemd of a user (systemd --user), run by root, because the system's manager
// has to be PID 1. With all rights, it creates no user namespace for a sandbox. Both managers apply
// the directives of a unit in the same way, with one exception. On hosts with cgroups of version 1,
// a user's manager does not use the device controller. PrivateDevices= uses that in addition to a
// /dev without devices.
//
// systemd passes neither descriptors nor environment variables of the caller to a service, and a
// test cannot wait for the process. So a unit's own process is test/lab/unit/spawn. It starts the
// program that a request over a socket names.
package unit
