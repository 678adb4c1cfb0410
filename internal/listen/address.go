package listen

import (
	"net"
	"strconv"
)

// IsAddress reports whether text is an IP address and a port. Host names are refused, because they
// may resolve to several addresses.
func IsAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && number > 0 && (host == "localhost" || net.ParseIP(host) != nil)
}

// IsLoopback reports whether only this host can connect to an address, so that TLS is not needed.
func IsLoopback(text string) bool {
	host, _, _ := net.SplitHostPort(text)
	return IsLoopbackHost(host)
}

// IsLoopbackHost is IsLoopback for an address without its port.
func IsLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
