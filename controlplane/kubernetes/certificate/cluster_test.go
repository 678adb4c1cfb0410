package certificate_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
)

// cluster approves and signs requests as a Kubernetes cluster does.
type cluster struct {
	t    *testing.T
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	life time.Duration

	mu        sync.Mutex
	approves  bool
	denies    bool
	rejects   bool  // certificates that it has signed itself
	exchanged int64 // certificates up to this serial number are not accepted
	tryErr    error
	tried     int
	away      error
	requests  map[string]*certificatesv1.CertificateSigningRequest
	submitted []time.Time
	backdate  time.Duration
}

func newCluster(t *testing.T, life time.Duration) *cluster {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{
		t: t, key: key, life: life, approves: true, requests: map[string]*certificatesv1.CertificateSigningRequest{},
		ca: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true},
	}
}

func (c *cluster) set(change func(*cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *cluster) Submit(_ context.Context, request *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away != nil {
		return nil, c.away
	}
	stored := c.requests[request.Name]
	if stored == nil {
		stored = request.DeepCopy()
		c.requests[request.Name] = stored
		c.submitted = append(c.submitted, time.Now())
	}
	switch {
	case c.denies:
		stored.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "No", Message: "not you"}}
	case c.approves && stored.Status.Conditions == nil: // a denial is final
		stored.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
		stored.Status.Certificate = c.sign(stored.Spec.Request)
	}
	return stored.DeepCopy(), nil
}

func (c *cluster) sign(request []byte) []byte {
	block, _ := pem.Decode(request)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		c.t.Errorf("request: %v", err)
		return nil
	}
	if err := parsed.CheckSignature(); err != nil {
		c.t.Errorf("request: %v", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(c.submitted)) + 1), Subject: parsed.Subject,
		NotBefore: time.Now().Add(-c.backdate), NotAfter: time.Now().Add(c.life),
	}, c.ca, parsed.PublicKey, c.key)
	if err != nil {
		c.t.Errorf("sign: %v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (c *cluster) try(_ context.Context, certificate *tls.Certificate) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried++
	switch {
	case c.tryErr != nil:
		return c.tryErr
	case c.rejects, certificate.Leaf.SerialNumber.Int64() <= c.exchanged:
		return fmt.Errorf("%w: %w", controlplane.ErrUnavailable, controlplane.ErrUnauthorized)
	}
	return nil
}

func (c *cluster) times() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.submitted)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// keep returns a keeper whose loop runs until stop is called.
func keep(t *testing.T, directory string, bootstrap, renewal certificate.Requests, c *cluster) (k *certificate.Keeper, stop func()) {
	t.Helper()
	k, err := certificate.New(certificate.Options{
		Node: "n", Directory: directory, Bootstrap: bootstrap, Renewal: renewal, Try: c.try, Renewed: func() {}, Log: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return k, func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want its context's end", err)
		}
	}
}

// after lets that much time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func serial(t *testing.T, k *certificate.Keeper) int64 {
	t.Helper()
	current, err := k.Certificate()
	if err != nil {
		t.Fatalf("Certificate() = %v, want one", err)
	}
	return current.Leaf.SerialNumber.Int64()
}
