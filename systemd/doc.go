// Package systemd is hostler's only door to systemd: logind and its delay locks
// over the system bus, and the manager over its private socket. How D-Bus is
// spoken is bus's; what this service tells its manager is notify's.
//
// It owns the lock on the host's shutdown and the drop-in that raises logind's
// longest delay. It decides nothing: when to lock, to release or to drain is
// the shutdown guard's to say, and whether the service stop is a shutdown the
// agent's. It starts no service, and asks the bus to start none.
package systemd
