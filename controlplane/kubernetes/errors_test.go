package kubernetes_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
)

func TestWhatAnswersMean(t *testing.T) {
	plain := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
	}
	proper := func(code int, reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { refuse(w, code, reason, "the reason") }
	}
	for name, check := range map[string]struct {
		answer  http.HandlerFunc
		class   error
		message string
	}{
		"no such node":                                  {proper(404, "NotFound"), controlplane.ErrNotFound, "the reason"},
		"changed meanwhile":                             {proper(409, "Conflict"), controlplane.ErrConflict, "the reason"},
		"the name is taken":                             {proper(409, "AlreadyExists"), controlplane.ErrConflict, "the reason"},
		"a label that a node may not set":               {proper(403, "Forbidden"), controlplane.ErrForbidden, "the reason"},
		"an object that breaks the rules":               {proper(422, "Invalid"), controlplane.ErrInvalid, "the reason"},
		"a request that makes no sense":                 {proper(400, "BadRequest"), controlplane.ErrInvalid, "the reason"},
		"an object too large":                           {proper(413, "RequestEntityTooLarge"), controlplane.ErrInvalid, "the reason"},
		"credentials that are not accepted":             {proper(401, "Unauthorized"), controlplane.ErrUnavailable, "rejected the credentials of"},
		"credentials that a proxy does not accept":      {plain(401, "<html>log in</html>"), controlplane.ErrUnavailable, ""},
		"etcd is away":                                  {proper(500, "InternalError"), controlplane.ErrUnavailable, "the reason"},
		"the server is going down":                      {proper(503, "ServiceUnavailable"), controlplane.ErrUnavailable, "the reason"},
		"too many requests":                             {plain(429, "Too many requests"), controlplane.ErrUnavailable, "too many"},
		"a method that is not allowed":                  {proper(405, "MethodNotAllowed"), controlplane.ErrUnavailable, "the reason"},
		"a load balancer without a server behind it":    {plain(502, "Bad gateway"), controlplane.ErrUnavailable, ""},
		"a not found that is not an API server's":       {plain(404, "404 page not found"), controlplane.ErrUnavailable, ""},
		"a forbidden that is not an API server's":       {plain(403, "<html>captive portal</html>"), controlplane.ErrUnavailable, ""},
		"a page in place of a node":                     {plain(200, "<html>welcome</html>"), controlplane.ErrUnavailable, ""},
		"a connection that is closed without an answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, controlplane.ErrUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, serve(t, check.answer))
			_, err := client.Node(t.Context(), "n")
			if !errors.Is(err, check.class) || !strings.HasPrefix(err.Error(), `get node "n": `) || !strings.Contains(err.Error(), check.message) {
				t.Errorf("Node() = %v, want an error that is %q, begins with the operation and says %q", err, check.class, check.message)
			}
			if got, want := errors.Is(err, controlplane.ErrUnauthorized), name == "credentials that are not accepted"; got != want {
				t.Errorf("Node() = %v, is about credentials: %v, want %v", err, got, want)
			}
			for _, class := range []error{controlplane.ErrNotFound, controlplane.ErrConflict, controlplane.ErrForbidden, controlplane.ErrInvalid, controlplane.ErrUnavailable} {
				if class != check.class && errors.Is(err, class) {
					t.Errorf("Node() = %v, want it not to be %q too", err, class)
				}
			}
		})
	}
}

func TestARefusalOfLabelsIsDistinguished(t *testing.T) {
	for text, want := range map[string]bool{`nodes "n" is forbidden: is not allowed to modify labels: node-role.kubernetes.io/x`: true, `nodes "n" is forbidden`: false} {
		_, err := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "Forbidden", text) })).Node(t.Context(), "n")
		if _, labels := errors.AsType[*controlplane.LabelsError](err); labels != want || !errors.Is(err, controlplane.ErrForbidden) {
			t.Errorf("Node() = %v, is about labels: %v, want %v, and forbidden", err, labels, want)
		}
	}
}

func TestAServerThatRequestsALaterRetryIsNotWaitedFor(t *testing.T) {
	requests := 0
	client := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests++
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	}))
	_, err := client.Node(t.Context(), "n")
	busy, ok := errors.AsType[*controlplane.BusyError](err)
	if !ok || busy.After != time.Hour || !errors.Is(err, controlplane.ErrUnavailable) || requests != 1 {
		t.Errorf("Node() = %v after %d requests, want a BusyError of 1h after 1", err, requests)
	}
}

func TestAServerThatRequestsALaterRetryWithAWatchIsNotWaitedForEither(t *testing.T) {
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			respond(w, nodeText)
			return
		}
		w.Header().Set("Retry-After", "3600")
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	}))
	err := client.WatchNode(t.Context(), "n", make(chan *corev1.Node, 1))
	if busy, ok := errors.AsType[*controlplane.BusyError](err); !ok || busy.After != time.Hour || !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("WatchNode() = %v, want a BusyError of 1h", err)
	}
}

func TestCausesOfNoConnectionAreDistinguished(t *testing.T) {
	answers := func(w http.ResponseWriter, _ *http.Request) { respond(w, nodeText) }
	for name, c := range map[string]struct {
		client func(*testing.T) *kubernetes.Client
		class  error // in addition to ErrUnavailable; nil for none
	}{
		"nobody is there": {func(t *testing.T) *kubernetes.Client {
			server := serve(t, answers)
			client := dial(t, server)
			server.Close()
			return client
		}, nil},
		"another authority has signed who answers": {func(t *testing.T) *kubernetes.Client {
			return open(t, write(t, "kubeconfig", config(serve(t, answers).URL, "certificate-authority: "+write(t, "ca.crt", stranger(t)), "token: secret")))
		}, controlplane.ErrUntrusted},
		"it does not know who asks": {func(t *testing.T) *kubernetes.Client {
			return dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				refuse(w, http.StatusUnauthorized, "Unauthorized", "the reason")
			}))
		}, controlplane.ErrUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.client(t).Node(t.Context(), "n")
			if !errors.Is(err, controlplane.ErrUnavailable) {
				t.Errorf("Node() = %v, want that it is unavailable", err)
			}
			for _, class := range []error{controlplane.ErrUntrusted, controlplane.ErrUnauthorized} {
				if got := errors.Is(err, class); got != (class == c.class) {
					t.Errorf("Node() = %v, is %q: %v, want %v", err, class, got, !got)
				}
			}
		})
	}
}

// stranger returns a self-signed certificate, as PEM.
func stranger(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestCallsEndWithTheirContext(t *testing.T) {
	block, hangs := make(chan struct{}), atomic.Bool{}
	defer close(block)
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !hangs.Load() {
			respond(w, leaseText)
			return
		}
		select {
		case <-block:
		case <-r.Context().Done():
		}
	}))
	mine := errors.New("somebody else's turn")
	for name, check := range map[string]struct {
		context func() (context.Context, context.CancelFunc)
		want    error
	}{
		"a deadline of the caller's": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 50*time.Millisecond)
		}, controlplane.ErrNoAnswer},
		"a cause of the caller's": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(t.Context())
			timer := time.AfterFunc(50*time.Millisecond, func() { cancel(mine) })
			return ctx, func() { timer.Stop() }
		}, mine},
	} {
		t.Run(name, func(t *testing.T) {
			hangs.Store(false)
			if _, err := client.Lease(t.Context(), "n"); err != nil { // the files are read, and there is a connection
				t.Fatal(err)
			}
			hangs.Store(true)
			ctx, cancel := check.context()
			defer cancel()
			_, err := client.RenewLease(ctx, newLease(t, "n"))
			if !errors.Is(err, check.want) || errors.Is(err, controlplane.ErrUnavailable) != errors.Is(check.want, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "no answer from https://") {
				t.Errorf("RenewLease() = %v, want %v and who did not answer", err, check.want)
			}
		})
	}
}

func TestCallsWithoutADeadlineHaveOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := controlplane.Bound(t.Context(), 8*time.Second)
		defer cancel()
		<-ctx.Done()
		if err := context.Cause(ctx); time.Since(start) != 8*time.Second || !errors.Is(err, controlplane.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call without a deadline ended after %v with %v, want 8s and a control plane that is unavailable", time.Since(start), err)
		}
	})
}
