// Package systemd is hostler's only door to systemd: logind and its delay
// locks over the system bus, the manager over its private socket, and the
// service manager's notification socket with its descriptor store.
//
// It owns the lock on the host's shutdown and the drop-in that raises logind's
// longest delay. It decides nothing: when to lock, to release or to drain is
// the shutdown guard's to say, and whether the service stop is a shutdown the
// agent's. It starts no service, and asks the bus to start none.
package systemd
