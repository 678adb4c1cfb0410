package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/controlplane"
)

const (
	// A certificate is renewed at a random time between these fractions of its life, as kubelet does.
	// Otherwise all hosts of a fleet that was installed in one day would renew in the same hour.
	renewFrom, renewTo = 0.7, 0.9

	attemptTimeout  = 30 * time.Second // for one attempt
	deniedPause     = 5 * time.Minute  // after a request was denied
	recheckInterval = time.Hour        // the wall clock may be set, and the host may be suspended
)

// retry returns the pauses between attempts. They are long, because a person may have to approve a
// request.
func retry() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 1.5, Jitter: 0.2, Steps: math.MaxInt32, Cap: 30 * time.Second}
}

// Options configure a Keeper.
type Options struct {
	Node      string
	Directory string
	// Current is the certificate that clients present; if nil, the Keeper creates one.
	Current *Current
	// Bootstrap makes requests for a node without a certificate; nil if that is not configured.
	Bootstrap Requests
	// Renewal makes requests with the certificate in use.
	Renewal Requests
	// Try returns nil if the server accepts a certificate.
	Try func(context.Context, *tls.Certificate) error
	// Renewed is called after another certificate was put into use.
	Renewed func()
	Log     *slog.Logger
}

// Keeper keeps this node's certificate. It is safe for concurrent use.
type Keeper struct {
	*Current
	o     Options
	store store
}

// New returns a keeper of the certificate in the directory. It renames a damaged file and logs a
// warning.
func New(o Options) (*Keeper, error) {
	if o.Directory == "" {
		return nil, errors.New("no directory for certificates given: set controlPlane.kubernetes.certificateDirectory")
	}
	o.Log = o.Log.With("component", "certificate")
	if o.Current == nil {
		o.Current = NewCurrent()
	}
	k := &Keeper{Current: o.Current, o: o, store: store{o.Directory}}
	current, err := k.store.current(commonName(o.Node))
	if err != nil {
		o.Log.Warn("cannot use stored certificate", "error", err)
	}
	if current != nil {
		k.use(current, current.Leaf.NotBefore)
	}
	return k, nil
}

// Run gets a certificate if there is none or the server rejects it, and renews it in time. It runs
// until ctx ends, and returns the cause. Failed attempts are repeated without a limit.
func (k *Keeper) Run(ctx context.Context) error {
	backoff := retry()
	for doubted := false; ; {
		pause, doubts := k.due(), k.doubted
		if doubted || pause <= 0 {
			err := k.attempt(ctx, doubted)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			k.note(err)
			switch {
			case err == nil:
				doubted = false
				if due, again := k.due(), backoff.Step(); due > again {
					pause, backoff = due, retry()
				} else { // a certificate that is due again at once is renewed less and less often
					pause, doubts = again, nil
				}
			case errors.Is(err, ErrDenied):
				pause = wait.Jitter(deniedPause, backoff.Jitter)
			default:
				pause = backoff.Step()
			}
			doubted = doubted || errors.Is(err, controlplane.ErrUnauthorized)
			if err != nil {
				doubts = nil // doubts must not shorten the pause: each request may report one
			}
		}
		timer := time.NewTimer(min(pause, recheckInterval))
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-doubts:
			doubted = true
		case <-timer.C:
		}
		timer.Stop()
	}
}

// attempt requests a certificate if one is due. If the one in use is doubted, it first checks
// whether the server accepts it.
func (k *Keeper) attempt(ctx context.Context, doubted bool) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	k.mu.Lock()
	current := k.certificate
	k.mu.Unlock()
	if current == nil || !time.Now().Before(current.Leaf.NotAfter) {
		if k.o.Bootstrap == nil {
			return fmt.Errorf("%w: no certificate in %s, and none can be requested: set controlPlane.kubernetes.bootstrapKubeconfig", controlplane.ErrUnavailable, k.o.Directory)
		}
		return k.request(ctx, k.o.Bootstrap)
	}
	if !doubted {
		return k.request(ctx, k.o.Renewal)
	}
	err := k.o.Try(ctx, current)
	switch {
	case err == nil && k.due() > 0: // the server accepts it now
		return nil
	case err == nil:
		return k.request(ctx, k.o.Renewal)
	case !errors.Is(err, controlplane.ErrUnauthorized):
		return fmt.Errorf("check certificate in use: %w", err)
	case k.o.Bootstrap == nil:
		return &RefusedError{Until: current.Leaf.NotAfter, Err: err}
	}
	if err := k.request(ctx, k.o.Bootstrap); err != nil {
		return &RefusedError{Until: current.Leaf.NotAfter, Err: err}
	}
	return nil
}

// RefusedError reports that the server rejects the certificate in use although it has not expired,
// and why there is no other one yet.
type RefusedError struct {
	Until time.Time
	Err   error
}

// Error names both causes.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the server rejected this node's certificate, valid until %s; requesting another with the bootstrap kubeconfig: %v", e.Until.UTC().Format(time.RFC3339), e.Err)
}

// Unwrap returns why there is no other certificate.
func (e *RefusedError) Unwrap() error { return e.Err }

// request makes a request, or reads the pending one.
func (k *Keeper) request(ctx context.Context, requests Requests) error {
	key, err := k.store.pending()
	if err != nil {
		return fmt.Errorf("create key of certificate: %w", err)
	}
	wanted, err := newRequest(k.o.Node, key)
	if err != nil {
		return fmt.Errorf("create certificate signing request: %w", err)
	}
	request, err := requests.Submit(ctx, wanted)
	if err != nil {
		return err
	}
	text, next, err := issued(request, k.o.Node, key)
	if errors.Is(err, ErrDenied) {
		// The name of a denied request cannot be used again, and so its key cannot either.
		return errors.Join(err, k.store.forget())
	}
	if err != nil {
		return err
	}
	if err := k.o.Try(ctx, next); err != nil {
		return fmt.Errorf("try certificate of request %s: %w; using the previous one", request.Name, err)
	}
	if err := k.store.replace(text, key); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	// Signers backdate certificates, usually by 5 minutes, which may be longer than their life.
	k.use(next, time.Now())
	k.o.Log.Info("using new certificate", "node", k.o.Node, "request", request.Name, "until", next.Leaf.NotAfter)
	k.o.Renewed()
	return nil
}

// use puts a certificate into use. began is the start of its life.
func (k *Keeper) use(certificate *tls.Certificate, began time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	life := certificate.Leaf.NotAfter.Sub(began)
	k.certificate = certificate
	// Uses the wall clock, as the certificate's end does. The monotonic clock stops while the host is
	// suspended, and ignores a wall clock that is set after the start.
	k.renewAt = began.Round(0).Add(time.Duration(float64(life) * (renewFrom + rand.Float64()*(renewTo-renewFrom))))
}

// note records the result of an attempt, and logs when failures begin, change and end.
func (k *Keeper) note(err error) {
	k.mu.Lock()
	before := k.state
	k.state = err
	k.mu.Unlock()
	_, refused := errors.AsType[*RefusedError](err)
	_, refusedBefore := errors.AsType[*RefusedError](before)
	_, waits := errors.AsType[*WaitingError](err)
	_, waitedBefore := errors.AsType[*WaitingError](before)
	if err != nil && (before == nil || waits != waitedBefore || refused != refusedBefore) {
		k.o.Log.Warn("no new certificate yet, retrying", "node", k.o.Node, "error", err)
	}
}
