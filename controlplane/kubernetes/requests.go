package kubernetes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// Requests makes certificate signing requests, with the credentials of Options.
type Requests struct {
	client *Client
	group  *apiGroup
}

// NewRequests returns a client that is not connected yet.
func NewRequests(o Options) (*Requests, error) {
	client, err := New(o)
	if err != nil {
		return nil, err
	}
	return &Requests{client: client, group: newGroup(client.o, certificatesv1.SchemeGroupVersion)}, nil
}

// Submit stores a request, or returns the stored one of its name with its state.
func (r *Requests) Submit(ctx context.Context, request *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	stored := &certificatesv1.CertificateSigningRequest{}
	ask := func(how string, build func(rest.Interface) *rest.Request) error {
		return r.client.ask(ctx, fmt.Sprintf("%s certificate signing request %q", how, request.Name), r.group, build, stored)
	}
	get := func() error {
		return ask("get", func(i rest.Interface) *rest.Request {
			return i.Get().Resource("certificatesigningrequests").Name(request.Name)
		})
	}
	err := get()
	if errors.Is(err, controlplane.ErrNotFound) {
		err = ask("create", func(i rest.Interface) *rest.Request {
			return i.Post().Resource("certificatesigningrequests").Body(request)
		})
		if errors.Is(err, controlplane.ErrConflict) { // the answer to the first attempt was lost
			err = get()
		}
	}
	return stored, err
}

// Reconnect makes the next request use a new connection, which presents the present certificate.
func (r *Requests) Reconnect() { r.group.Reconnect() }

// Try returns nil if the server accepts that certificate. It reads the node's own Node; the answers
// NotFound and Forbidden also mean that the certificate was accepted.
func Try(ctx context.Context, o Options, node string, certificate *tls.Certificate) error {
	o.Refused = nil // the caller gets the error
	o.Certificate = func() (*tls.Certificate, error) { return certificate, nil }
	client, err := New(o)
	if err != nil {
		return err
	}
	defer client.Reconnect()
	_, err = client.Node(ctx, node)
	if errors.Is(err, controlplane.ErrNotFound) || errors.Is(err, controlplane.ErrForbidden) {
		return nil
	}
	return err
}
