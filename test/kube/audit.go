package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Request is one that the API server answered, or, of a watch, began to.
type Request struct {
	URI       string    // path and query
	Time      time.Time // when it came
	Answered  time.Time
	User      string   // such as "system:node:machine-1"
	Groups    []string // that the user is in
	UserAgent string
	// Verb is the authorizer's: get, list, watch, create, update, patch, delete.
	Verb string
	// Resource is the plural, such as "nodes"; Subresource such as "status", or empty.
	Resource, Subresource string
	Namespace, Name       string
	Code                  int // of HTTP
}

// String is how a test shows it: "patch nodes/status machine-1 200".
func (r Request) String() string {
	resource, name := r.Resource, r.Name
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s %s %d", r.Verb, resource, name, r.Code)
}

// auditEvent is a line of the audit log, as far as it is needed.
type auditEvent struct {
	AuditID         string
	Verb, UserAgent string
	RequestURI      string
	User            struct {
		Username string
		Groups   []string
	}
	ObjectRef                struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct{ Code int }
	RequestReceivedTimestamp time.Time
	StageTimestamp           time.Time
}

// Requests returns what everybody, the control plane itself included, has asked
// of resources, in the order in which it was answered.
func (c *Cluster) Requests() ([]Request, error) {
	data, err := os.ReadFile(c.file("audit.log"))
	if err != nil {
		return nil, err
	}
	var requests []Request
	seen := map[string]bool{}
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		// The end of a watch is a second line.
		if seen[e.AuditID] {
			continue
		}
		seen[e.AuditID] = true
		requests = append(requests, Request{
			Time: e.RequestReceivedTimestamp, Answered: e.StageTimestamp, User: e.User.Username, Groups: e.User.Groups, UserAgent: e.UserAgent, Verb: e.Verb, URI: e.RequestURI,
			Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Code: e.ResponseStatus.Code,
		})
	}
	return requests, nil
}
