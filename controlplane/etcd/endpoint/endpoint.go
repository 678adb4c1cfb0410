// Package endpoint checks the syntax of etcd endpoints and key prefixes in the configuration.
//
// It connects to nothing.
package endpoint

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"hostler.io/hostler/internal/listen"
)

// DefaultPort is the port on which etcd serves clients.
const DefaultPort = "2379"

// Check returns an error unless the endpoint is https://HOST:PORT, or http on this host. insecure
// allows http on other hosts, too. key is the name of insecure in the configuration.
func Check(endpoint string, insecure bool, key string) error {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%q is not an endpoint: write it as https://HOST:%s", redacted(endpoint), DefaultPort)
	case u.Hostname() == "":
		return fmt.Errorf("%q has no host: write it as %s://HOST:%s", redacted(endpoint), u.Scheme, DefaultPort)
	case u.User != nil:
		return fmt.Errorf("the endpoint at %s contains a user: set username and passwordFile instead", u.Host)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%q has more than a host and a port: write it as %s://%s", redacted(endpoint), u.Scheme, u.Host)
	case u.Scheme == "http" && !insecure && !listen.IsLoopbackHost(u.Hostname()):
		return fmt.Errorf("%q sends data and passwords unencrypted: use https, or set %s: true", redacted(endpoint), key)
	}
	return nil
}

// redacted returns the part of an endpoint that may be printed: no user, no password and no query,
// even in places where a URL has none.
func redacted(endpoint string) string {
	if at := strings.LastIndex(endpoint, "@"); at >= 0 {
		endpoint = "…" + endpoint[at:]
	}
	if end := strings.IndexAny(endpoint, "?#"); end >= 0 {
		endpoint = endpoint[:end] + "…"
	}
	return endpoint
}

// Plain reports whether the connection to an endpoint is not encrypted. That is the case only with
// the scheme http, in upper or lower case.
func Plain(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Scheme == "http"
}

// CheckPrefix returns an error unless the prefix of keys is valid, such as /hostler.
func CheckPrefix(prefix string) error {
	path, rooted := strings.CutPrefix(prefix, "/")
	for part := range strings.SplitSeq(path, "/") {
		if !rooted || part == "" || strings.ContainsFunc(part, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return fmt.Errorf("%q is not a prefix: begin it with / and do not end it with /, such as /hostler", prefix)
		}
	}
	return nil
}

// Address returns the address of an endpoint, as HOST:PORT.
func Address(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("%q is not an endpoint: write it as https://HOST:%s", redacted(endpoint), DefaultPort)
	}
	port := u.Port()
	if port == "" {
		port = DefaultPort
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}
