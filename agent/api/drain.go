package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"hostler.io/hostler/agent/maintenance"
)

// Drainer serves the routes that stop pods without a shutdown. All methods are safe for concurrent
// use.
type Drainer interface {
	// Drain stops pods, calls progress for each finished pod, and returns the report, even with an
	// error. It stops when ctx ends.
	Drain(ctx context.Context, req maintenance.DrainRequest, progress func(maintenance.DrainStep)) (maintenance.DrainReport, error)
	DrainPlan(ctx context.Context, req maintenance.DrainRequest) (maintenance.DrainPlan, error)
	// Cordon marks the Node unschedulable or schedulable.
	Cordon(ctx context.Context, unschedulable bool) (maintenance.CordonReport, error)
	// Leave deletes the Node and its Lease from the control plane. Hostler does not create them
	// again until Return.
	Leave(ctx context.Context) (maintenance.LeaveReport, error)
	// Return registers the Node again after Leave.
	Return(ctx context.Context) (maintenance.LeaveReport, error)
}

// DrainLine is one line of a streamed drain. The last line has the report, the error, or both.
type DrainLine struct {
	Step   *maintenance.DrainStep   `json:"step,omitempty"`
	Report *maintenance.DrainReport `json:"report,omitempty"`
	Error  *Error                   `json:"error,omitempty"`
}

// drainRoutes are the routes of a Drainer.
func drainRoutes(b Drainer) []route {
	cordon := func(unschedulable bool) http.HandlerFunc {
		return answer(func(r *http.Request) (any, error) { return b.Cordon(r.Context(), unschedulable) })
	}
	plan := answerTo(decodeAny, func(ctx context.Context, req maintenance.DrainRequest) (any, error) { return b.DrainPlan(ctx, req) })
	leave := answer(func(r *http.Request) (any, error) { return b.Leave(r.Context()) })
	undo := answer(func(r *http.Request) (any, error) { return b.Return(r.Context()) })
	return []route{
		{"POST /v1/drain", act, network, drain(b), "Cordons the Node and stops its pods. One line per pod; the last line is the report, the error, or both.", maintenance.DrainRequest{}, DrainLine{}, jsonLines},
		{"POST /v1/drain/plan", read, network, plan, "The pods that a drain would stop now, and when.", maintenance.DrainRequest{}, maintenance.DrainPlan{}, oneJSON},
		{"POST /v1/cordon", act, network, cordon(true), "Closes the Node to new pods.", nil, maintenance.CordonReport{}, oneJSON},
		{"POST /v1/uncordon", act, network, cordon(false), "Opens the Node to new pods.", nil, maintenance.CordonReport{}, oneJSON},
		{"POST /v1/leave", act, local, leave, "Deregisters the host: deletes its Node and Lease.", nil, maintenance.LeaveReport{}, oneJSON},
		{"POST /v1/leave/undo", act, local, undo, "Registers the Node again.", nil, maintenance.LeaveReport{}, oneJSON},
	}
}

// drain streams a line for each pod, and the report at the end. A caller that disconnects ends the
// drain. A caller that only stops reading does not delay it.
func drain(b Drainer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req, err := decodeAny[maintenance.DrainRequest](r)
		if err != nil {
			fail(w, http.StatusBadRequest, asError(err))
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		enc, stream := json.NewEncoder(w), http.NewResponseController(w)
		send := func(line DrainLine) {
			_ = stream.SetWriteDeadline(time.Now().Add(writeTime))
			_ = enc.Encode(line) // the request's context ends if the caller disconnects
			_ = stream.Flush()
		}
		_ = stream.Flush() // lets a caller distinguish an interrupted drain from a missing agent
		report, err := b.Drain(r.Context(), req, func(s maintenance.DrainStep) { send(DrainLine{Step: &s}) })
		last := DrainLine{}
		if err != nil {
			last.Error = asError(err)
		}
		if err == nil || !report.StartedAt.IsZero() {
			last.Report = &report
		}
		_ = stream.SetWriteDeadline(time.Now().Add(writeTime))
		send(last)
	}
}

// Drain stops pods, calls progress for each finished pod, and returns the report at the end, even
// with an error. When ctx ends, the drain ends.
func (c *Client) Drain(ctx context.Context, req maintenance.DrainRequest, progress func(maintenance.DrainStep)) (maintenance.DrainReport, error) {
	resp, err := c.do(ctx, http.MethodPost, "/v1/drain", req)
	if err != nil {
		return maintenance.DrainReport{}, err
	}
	defer resp.Body.Close()
	read := lines(resp.Body)
	for {
		var line DrainLine
		if err := read(&line); err != nil {
			return maintenance.DrainReport{}, &UnreachableError{c.socket, fmt.Errorf("the drain broke off, and the node may be left cordoned: %w", err)}
		}
		if line.Step != nil {
			progress(*line.Step)
			continue
		}
		var report maintenance.DrainReport
		if line.Report != nil {
			report = *line.Report
		}
		if line.Error != nil {
			return report, line.Error
		}
		return report, nil
	}
}

// DrainPlan returns what a drain would do now.
func (c *Client) DrainPlan(ctx context.Context, req maintenance.DrainRequest) (maintenance.DrainPlan, error) {
	return ask[maintenance.DrainPlan](ctx, c, http.MethodPost, "/v1/drain/plan", req)
}

// Cordon marks the Node unschedulable or schedulable.
func (c *Client) Cordon(ctx context.Context, unschedulable bool) (maintenance.CordonReport, error) {
	path := "/v1/uncordon"
	if unschedulable {
		path = "/v1/cordon"
	}
	return ask[maintenance.CordonReport](ctx, c, http.MethodPost, path, nil)
}

// Leave deletes the Node and its Lease from the control plane.
func (c *Client) Leave(ctx context.Context) (maintenance.LeaveReport, error) {
	return ask[maintenance.LeaveReport](ctx, c, http.MethodPost, "/v1/leave", nil)
}

// Return registers the Node again after Leave.
func (c *Client) Return(ctx context.Context) (maintenance.LeaveReport, error) {
	return ask[maintenance.LeaveReport](ctx, c, http.MethodPost, "/v1/leave/undo", nil)
}

// decodeAny decodes a request of a few hundred bytes.
func decodeAny[Q any](r *http.Request) (req Q, err error) {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 4<<10))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); errors.Is(err, io.EOF) {
		return req, &Error{Message: "read request: no body", Hint: "send JSON, such as {}: see /usr/share/doc/hostler/docs/reference/api.md for the fields"}
	} else if err != nil {
		return req, &Error{Message: "read request: " + err.Error()}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return req, &Error{Message: "read request: more than one JSON value, or too long a one"}
	}
	return req, nil
}
