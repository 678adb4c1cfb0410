package listen

import (
	"net"
	"time"
)

// Caller tells callers by TCP apart.
func Caller(c net.Conn) (who any, own bool) { return caller(c) }

// SetCalm changes how long a caller is not kept out until that counts as over.
func SetCalm(l net.Listener, d time.Duration) { l.(*bounded).quiet = d }

// Within lowers bounds where there are few descriptors.
func (b Bounds) Within(descriptors uint64) Bounds { return b.within(descriptors) }
