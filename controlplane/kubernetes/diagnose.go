package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/dial"
	"hostler.io/hostler/internal/trust"
)

// Diagnosis is the result of one check of the server. The check changes nothing.
type Diagnosis struct {
	Server string                // its URL; empty if the kubeconfig has none
	Node   *corev1.Node          // nil if there is none or it could not be read
	Lease  *coordinationv1.Lease // the same
	Err    error                 // why the Node could not be read; nil if there is none
	// Now is the time of the answer by the server's clock, to the second. Skew is how far this host's
	// clock was ahead of it. Both are zero without an answer.
	Now  time.Time
	Skew time.Duration
	// Rights says whether each requested right is granted, in that order; nil if the server does not
	// report it.
	Rights    []bool
	RightsErr error
}

// Right is a permission that the server can give these credentials.
type Right struct {
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
}

// String returns the right as text, such as "patch nodes/status".
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Namespace != "" {
		text += " in " + r.Namespace
	}
	return text
}

// Needed returns the rights that a Client needs as that node. The Node authorizer grants all of them.
func Needed(node string) []Right {
	lease := Right{Group: coordinationv1.GroupName, Resource: "leases", Namespace: controlplane.LeaseNamespace, Name: node}
	own, event := Right{Resource: "nodes", Name: node}, Right{Resource: "events", Namespace: metav1.NamespaceDefault}
	with := func(r Right, verb string) Right { r.Verb = verb; return r }
	status := with(own, "patch")
	status.Subresource = "status"
	return []Right{
		with(own, "get"), with(own, "watch"), with(own, "create"), with(own, "patch"), status,
		with(lease, "get"), with(lease, "create"), with(lease, "update"),
		with(event, "create"), with(event, "patch"),
	}
}

// ToLeave returns the right to delete the node's own Node. A node lacks it by default.
func ToLeave(node string) Right { return Right{Verb: "delete", Resource: "nodes", Name: node} }

// Diagnose collects a Diagnosis with one request for each part, over connections of its own.
func Diagnose(ctx context.Context, o Options, node string, rights []Right) (s Diagnosis) {
	o.Refused = nil   // the caller gets the error
	var mu sync.Mutex // guards now and skew: an abandoned request may still get an answer
	var now time.Time
	var skew time.Duration
	o.answered = func(date time.Time) {
		mu.Lock()
		defer mu.Unlock()
		now, skew = date, time.Since(date.Add(time.Second/2))
	}
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		s.Now, s.Skew = now, skew
	}()
	client, err := New(o)
	if err != nil {
		s.Err = err
		return s
	}
	defer client.Reconnect()
	s.Node, s.Err = client.Node(ctx, node)
	s.Server = client.core.server()
	if errors.Is(s.Err, controlplane.ErrNotFound) {
		s.Err = nil
	}
	if s.Err != nil && !errors.Is(s.Err, controlplane.ErrForbidden) {
		return s
	}
	s.Lease, _ = client.Lease(ctx, node) // its error is not needed: Rights has the details
	s.Rights, s.RightsErr = client.mayEach(ctx, rights)
	return s
}

// mayEach checks all rights in parallel: over a slow network, one after the other would take too
// long. After an error, all of them are unknown.
func (c *Client) mayEach(ctx context.Context, rights []Right) ([]bool, error) {
	allowed, errs := make([]bool, len(rights)), make([]error, len(rights))
	var answers sync.WaitGroup
	for i, r := range rights {
		answers.Go(func() { allowed[i], errs[i] = c.may(ctx, r) })
	}
	answers.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	return allowed, nil
}

// may checks whether this user has a right, which every user may do. Only this function uses that
// API group. It uses JSON, so that the scheme does not need the group.
func (c *Client) may(ctx context.Context, r Right) (bool, error) {
	type review struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Spec       struct {
			ResourceAttributes Right `json:"resourceAttributes"`
		} `json:"spec"`
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	question := review{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
	question.Spec.ResourceAttributes = r
	body, err := json.Marshal(question)
	if err != nil {
		return false, err
	}
	operation := fmt.Sprintf("check permission to %s", r)
	result, err := c.core.do(ctx, func(i rest.Interface) *rest.Request {
		return i.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
			SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body)
	})
	if err != nil {
		return false, c.fault(ctx, operation, err)
	}
	text, err := result.Raw()
	var answer review
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w: %v", operation, controlplane.ErrUnavailable, err)
	}
	return answer.Status.Allowed, nil
}

// Writers returns the other programs that have written the Node's status, with the time, by their
// names in managedFields.
func Writers(node *corev1.Node) map[string]time.Time {
	own, _, _ := strings.Cut(userAgent(""), "/")
	last := map[string]time.Time{}
	for _, f := range node.ManagedFields {
		if f.Subresource == "status" && f.Manager != own && f.Time != nil && f.Time.After(last[f.Manager]) {
			last[f.Manager] = f.Time.Time
		}
	}
	return last
}

// dateReporter reports the time in each answer.
type dateReporter struct {
	carrier  http.RoundTripper
	answered func(time.Time)
}

// RoundTrip implements http.RoundTripper.
func (l dateReporter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.carrier.RoundTrip(request)
	if err == nil {
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			l.answered(date)
		}
	}
	return response, err
}

// WrappedRoundTripper gives client-go access to the transport below.
func (l dateReporter) WrappedRoundTripper() http.RoundTripper { return l.carrier }

// Held are the credentials in a kubeconfig, as far as they can be read.
type Held struct {
	Certificate  string // file with the client certificate; empty if there is none
	Begins, Ends time.Time
	Secrets      []string // files with a key or a token
}

// Credentials reads the credentials in a kubeconfig. It makes no request and runs no plugin.
func Credentials(kubeconfig string) (Held, error) {
	var h Held
	config, err := Load(kubeconfig)
	if err != nil {
		return h, err
	}
	if len(config.KeyData) > 0 || config.Password != "" || config.BearerToken != "" && config.BearerTokenFile == "" {
		h.Secrets = append(h.Secrets, kubeconfig)
	}
	for _, file := range []string{config.KeyFile, config.BearerTokenFile} {
		if file != "" && !slices.Contains(h.Secrets, file) {
			h.Secrets = append(h.Secrets, file)
		}
	}
	text := config.CertData
	switch {
	case len(text) > 0:
		h.Certificate = kubeconfig
	case config.CertFile != "":
		h.Certificate = config.CertFile
		if text, err = trust.ReadFile(config.CertFile); err != nil {
			return h, fmt.Errorf("kubeconfig %s: %w: %s", kubeconfig, err, dial.FileHint(err))
		}
	default:
		return h, nil
	}
	chain, err := cert.ParseCertsPEM(text)
	if err != nil {
		return h, fmt.Errorf("kubeconfig %s: client certificate in %s: %w", kubeconfig, h.Certificate, err)
	}
	h.Begins, h.Ends = chain[0].NotBefore, chain[0].NotAfter
	return h, nil
}
