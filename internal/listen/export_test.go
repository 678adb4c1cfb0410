package listen

import "net"

// Caller tells callers by TCP apart.
func Caller(c net.Conn) (who any, own bool) { return caller(c) }

// Within lowers bounds where there are few descriptors.
func (b Bounds) Within(descriptors uint64) Bounds { return b.within(descriptors) }
