package listen

import (
	"net"
	"strconv"
)

// IsAddress reports whether text is an address and a port to listen at. A host name could be that of any
// of its addresses.
func IsAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && number > 0 && (host == "localhost" || net.ParseIP(host) != nil)
}

// IsLoopback reports whether only this host can connect to an address, so that it needs no TLS.
func IsLoopback(text string) bool {
	host, _, _ := net.SplitHostPort(text)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
