package listen

import "net"

// Address tells callers over the network apart.
func Address(c net.Conn) any {
	who, _ := address(c)
	return who
}
