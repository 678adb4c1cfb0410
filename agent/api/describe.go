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
	Request      any // a value of what its body is; nil for none
	Answer       any // likewise, of each line where Format has lines; nil for what is no JSON
	Format       string
}

// Describe lists the routes as they are served, in the order of the table.
func Describe() []Description {
	var list []Description
	for _, r := range table(nil, http.NotFoundHandler()) { // the handlers are not called
		method, path, _ := strings.Cut(r.pattern, " ")
		list = append(list, Description{method, path, r.access == act, r.reach == network, r.summary, r.request, r.answer, r.format})
	}
	return list
}
