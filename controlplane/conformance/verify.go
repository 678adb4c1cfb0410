package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
)

// namePrefix begins the names of all objects that are created on a control plane in use.
const namePrefix = "hostler-verify-"

// probeTimeout limits the wait for a control plane that may not answer.
const probeTimeout = 15 * time.Second

// NewPrefix returns a new Prefix for a Backend: "hostler-verify-", eight random letters and digits,
// and a dash.
func NewPrefix() string { return namePrefix + strings.ToLower(rand.Text()[:8]) + "-" }

// Verify runs the checks, one after another, and calls report, if not nil, with each result. If ctx
// ends, or the control plane stops answering, the other checks are not tried. It returns an error
// only if the control plane did not answer at all.
func Verify(ctx context.Context, b *Backend, checks []Check, report func(Result)) ([]Result, error) {
	if err := probe(ctx, b); err != nil {
		return nil, err
	}
	b.Expires = b.Expires || controlplane.EndsLeases(b.Client) // a client may know it only after its first answer
	var results []Result
	var gone error
	for _, check := range checks {
		r := Result{Check: check.Name, Status: Untried, Message: "interrupted"}
		switch {
		case gone != nil:
			r.Message = fmt.Sprintf("control plane stopped answering: %v", gone)
		case ctx.Err() == nil:
			r = Try(ctx, check, b)
			if r.Status == Failed && ctx.Err() == nil {
				gone = probe(ctx, b)
			}
		}
		results = append(results, r)
		if report != nil {
			report(r)
		}
	}
	return results, nil
}

// probe returns an error if the control plane does not answer.
func probe(ctx context.Context, b *Backend) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := b.Client.Node(ctx, b.Name("probe"))
	if errors.Is(err, controlplane.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Remove removes what a check may have left under that name: Node, Lease and, if the client can
// remove them, Events. It refuses a name without a prefix from NewPrefix.
func Remove(ctx context.Context, client controlplane.Client, name string) error {
	if !strings.HasPrefix(name, namePrefix) {
		return fmt.Errorf("remove %q: not created here, its name does not begin with %s", name, namePrefix)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	n := &recordingClient{Client: client, made: []string{name}, withEvents: []string{name}}
	_, err := n.clean(ctx, &Backend{Client: client})
	return err
}
