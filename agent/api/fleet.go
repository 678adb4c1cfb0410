package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"hostler.io/hostler/agent/fleet"
)

// FleetReader reads the hosts from the control plane.
type FleetReader interface {
	// Fleet calls each for every host, ordered by Node name, and then returns the fleet that the
	// hosts belong to. If each fails, Fleet stops and returns that error.
	Fleet(ctx context.Context, each func(fleet.Member) error) (fleet.Fleet, error)
	// Member returns the host whose Node has this name.
	Member(ctx context.Context, name string) (fleet.MemberOf, error)
}

// FleetLine is one line of a streamed fleet: a host, or at the end the fleet or the error.
type FleetLine struct {
	Member *fleet.Member `json:"member,omitempty"`
	Fleet  *fleet.Fleet  `json:"fleet,omitempty"`
	Error  *Error        `json:"error,omitempty"`
}

// FleetTime bounds listing the hosts. An API server keeps the pages of a list only for minutes.
const FleetTime = 3 * time.Minute

// fleetRoutes are the routes of a FleetReader.
func fleetRoutes(b FleetReader) []route {
	member := answer(func(r *http.Request) (any, error) { return b.Member(r.Context(), r.PathValue("name")) })
	return []route{
		{"GET /v1/nodes", read, network, streamFleet(b), "All hosts of the control plane. One line per host; the last line names the control plane, or the error.", nil, FleetLine{}, jsonLines},
		{"GET /v1/nodes/{name}", read, network, member, "One host of the control plane.", nil, fleet.MemberOf{}, oneJSON},
	}
}

// streamFleet streams a line for each host. If the caller disconnects, the requests to the control
// plane stop.
func streamFleet(b FleetReader) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), FleetTime)
		defer cancel()
		w.Header().Set("Content-Type", "application/x-ndjson")
		enc, stream := json.NewEncoder(w), http.NewResponseController(w)
		send := func(line FleetLine) error {
			_ = stream.SetWriteDeadline(time.Now().Add(writeTime))
			return enc.Encode(line)
		}
		read, err := b.Fleet(ctx, func(m fleet.Member) error { return send(FleetLine{Member: &m}) })
		last := FleetLine{Fleet: &read}
		if err != nil {
			last = FleetLine{Error: asError(err)}
		}
		_ = send(last) // fails only if the caller has disconnected
	}
}

// Fleet calls each for every host of the control plane, ordered by Node name, and returns the
// fleet. If each fails, Fleet stops and returns that error unchanged.
func (c *Client) Fleet(ctx context.Context, each func(fleet.Member) error) (fleet.Fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, FleetTime+answerTime)
	defer cancel()
	resp, err := c.do(ctx, http.MethodGet, "/v1/nodes", nil)
	if err != nil {
		return fleet.Fleet{}, err
	}
	defer resp.Body.Close()
	read := lines(resp.Body)
	for {
		var line FleetLine
		if err := read(&line); err != nil {
			return fleet.Fleet{}, &UnreachableError{c.socket, fmt.Errorf("the list of nodes broke off: %w", err)}
		}
		switch {
		case line.Error != nil:
			return fleet.Fleet{}, line.Error
		case line.Fleet != nil:
			return *line.Fleet, nil
		case line.Member != nil && line.Member.Node != nil:
			if err := each(*line.Member); err != nil {
				return fleet.Fleet{}, err
			}
		}
	}
}

// Member returns the host whose Node has this name.
func (c *Client) Member(ctx context.Context, name string) (fleet.MemberOf, error) {
	return ask[fleet.MemberOf](ctx, c, http.MethodGet, "/v1/nodes/"+url.PathEscape(name), nil)
}
