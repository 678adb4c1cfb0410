package api

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
)

// Names are the allowed names in client certificates of callers over the network. Names in Act may
// also read.
type Names struct{ Read, Act []string }

// certified is a caller over the network.
type certified struct {
	name string
	acts bool
}

// find returns the first allowed name, with its rights.
func (n Names) find(names []string) (peer certified, found bool) {
	for _, name := range names {
		switch {
		case slices.Contains(n.Act, name):
			return certified{name, true}, true
		case !found && slices.Contains(n.Read, name):
			peer, found = certified{name: name}, true
		}
	}
	return peer, found
}

// namesOf returns the names in a certificate: its common name, DNS names and URIs. Only URIs
// contain ://.
func namesOf(c *x509.Certificate) []string {
	var names []string
	for _, name := range append([]string{c.Subject.CommonName}, c.DNSNames...) {
		if name != "" && !strings.Contains(name, "://") {
			names = append(names, name)
		}
	}
	for _, u := range c.URIs {
		if text := u.String(); strings.Contains(text, "://") {
			names = append(names, text)
		}
	}
	return names
}

// NetworkRoutes returns the handler for the network. It serves callers with a verified client
// certificate that has one of the currently allowed names.
func NetworkRoutes(b Backend, metrics http.Handler, allowed func() Names, log *slog.Logger) http.Handler {
	routes := table(b, metrics)
	for i, r := range routes {
		if r.reach == local {
			routes[i].access, routes[i].handler = read, onlyLocal
		}
	}
	sites := http.NewCrossOriginProtection() // a browser with a client certificate sends it with requests of any page
	sites.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, &Error{Message: "the request comes from a page of another site"})
	}))
	return logged(admitted(sites.Handler(routed(routes)), allowed), log)
}

// NetworkMetrics returns a handler that serves only metrics, with the access rules of
// NetworkRoutes.
func NetworkMetrics(metrics http.Handler, allowed func() Names, log *slog.Logger) http.Handler {
	return logged(admitted(routed([]route{metricsRoute(metrics)}), allowed), log)
}

// onlyLocal rejects requests for a route that is not served over the network.
func onlyLocal(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusForbidden, &Error{Message: r.Method + " " + r.URL.Path + " is not served over the network", Hint: "do it on the host itself, as root"})
}

// admitted serves only callers whose certificate has an allowed name.
func admitted(next http.Handler, allowed func() Names) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			fail(w, http.StatusForbidden, &Error{Message: "no client certificate that is verified", Hint: "come with one of an authority in api.tls.clientCA"})
			return
		}
		names := namesOf(r.TLS.VerifiedChains[0][0])
		peer, found := allowed().find(names)
		if !found {
			fail(w, http.StatusForbidden, &Error{Message: fmt.Sprintf("no name of the client certificate is allowed here: %q", names), Hint: "on the host, add one to api.tls.allowedNames.read or .act, then `hostler reload`"})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), certifiedKey{}, peer)))
	})
}
