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

// family begins the names of all that is made where others have theirs, too.
const family = "hostler-verify-"

// probeTimeout bounds how long is waited for a control plane that may not answer.
const probeTimeout = 15 * time.Second

// NewPrefix returns a Backend's Prefix that nobody has used: "hostler-verify-", eight
// letters and digits at random, and a dash.
func NewPrefix() string { return family + strings.ToLower(rand.Text()[:8]) + "-" }

// Verify tries the checks, one after another, and calls tell with each result, which
// may be nil. Once ctx has ended, or the control plane does not answer any more, the
// rest is not tried. The error is that it has not answered at all.
func Verify(ctx context.Context, b *Backend, checks []Check, report func(Result)) ([]Result, error) {
	if err := probe(ctx, b); err != nil {
		return nil, err
	}
	b.Expires = b.Expires || controlplane.EndsLeases(b.Client) // as a client may know only now
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

// probe returns why the control plane does not answer.
func probe(ctx context.Context, b *Backend) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := b.Client.Node(ctx, b.Name("probe"))
	if errors.Is(err, controlplane.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Remove removes what a check may have left by that name: Node, Lease and, where the
// client can, Events. It refuses a name that no NewPrefix begins.
func Remove(ctx context.Context, client controlplane.Client, name string) error {
	if !strings.HasPrefix(name, family) {
		return fmt.Errorf("remove %q: not created here, its name does not begin with %s", name, family)
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	n := &noting{Client: client, made: []string{name}, withEvents: []string{name}}
	_, err := n.clean(ctx, &Backend{Client: client})
	return err
}
