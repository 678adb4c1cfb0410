package api

import (
	"net/http"
	"strings"
)

// Description describes a route for authors of clients.
type Description struct {
	Method, Path string
	Acts         bool // for root only, and over the network for actors
	Network      bool // it is served over the network, too
	Summary      string
	Request      any // a value of the body's type; nil for none
	Answer       any // likewise for the answer, or for each line if Format has lines; nil if it is not JSON
	Format       string
}

// Describe lists the routes in the order of the table.
func Describe() []Description {
	var list []Description
	for _, r := range table(nil, http.NotFoundHandler()) { // the handlers are not called
		method, path, _ := strings.Cut(r.pattern, " ")
		list = append(list, Description{method, path, r.access == act, r.reach == network, r.summary, r.request, r.answer, r.format})
	}
	return list
}
