// Package systemd is hostler's only access to systemd: logind and its delay locks over the system
// bus, and the manager over its private socket. Package bus has the D-Bus connections; package
// notify sends notifications to the manager.
//
// It owns the delay lock and the drop-in that raises logind's InhibitDelayMaxSec. The shutdown
// guard decides when to lock, release or drain; the agent decides whether a service stop is a
// shutdown. It starts no services, also not by D-Bus activation.
package systemd
