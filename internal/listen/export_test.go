package listen

import (
	"net"
	"time"
)

// Caller returns the caller of a TCP connection.
func Caller(c net.Conn) (who any, own bool) { return caller(c) }

// SetCalm changes quietTime for a listener.
func SetCalm(l net.Listener, d time.Duration) { l.(*bounded).quiet = d }

// Within lowers the bounds to a limit of descriptors.
func (b Bounds) Within(descriptors uint64) Bounds { return b.within(descriptors) }
