package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Request is a request that the API server has answered; a watch counts when it starts.
type Request struct {
	URI       string    // path and query
	Time      time.Time // of its arrival
	Answered  time.Time
	User      string   // such as "system:node:machine-1"
	Groups    []string // of the user
	UserAgent string
	// Verb is the verb of the authorizer: get, list, watch, create, update, patch, delete.
	Verb string
	// Resource is the plural, such as "nodes". Subresource is such as "status", or empty.
	Resource, Subresource string
	Namespace, Name       string
	Code                  int // of HTTP
}

// String is the text for tests, such as "patch nodes/status machine-1 200".
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

// auditEvent has the needed fields of a line of the audit log.
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

// Requests returns all requests for resources, including those of the control plane itself, in the
// order of their answers.
func (c *Cluster) Requests() ([]Request, error) {
	data, err := os.ReadFile(c.file("audit.log"))
	if err != nil {
		return nil, err
	}
	var requests []Request
	seen := map[string]bool{}
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		// The end of a watch has a second line.
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
