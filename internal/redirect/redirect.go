// Package redirect keeps HTTP clients from following redirects. A client that follows one sends its credentials, and
// what it asks, to a place that the configuration does not name, also unencrypted.
package redirect

import (
	"fmt"
	"net/http"
)

// Refuse is the CheckRedirect of an http.Client.
func Refuse(to *http.Request, _ []*http.Request) error {
	return fmt.Errorf("it redirects to %s, which is not followed: configure the final address", to.URL.Redacted())
}
