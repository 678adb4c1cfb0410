package certificate_test

import (
	"bytes"
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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/controlplane/kubernetes/certificate"
)

// cluster approves and signs as one of Kubernetes does.
type cluster struct {
	t    *testing.T
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	life time.Duration

	mu        sync.Mutex
	approves  bool
	denies    bool
	rejects   bool  // certificates that it signed itself
	exchanged int64 // serial number up to which certificates are not accepted
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
	case c.approves && stored.Status.Conditions == nil: // a denial stands
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

// keep returns a keeper whose loop runs until stop.
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

func TestANodeWaitsForItsApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, directory := newCluster(t, 24*time.Hour), filepath.Join(t.TempDir(), "pki")
		c.approves = false
		k, stop := keep(t, directory, c, nil, c)
		after(time.Minute)
		_, err := k.Certificate()
		if !errors.Is(err, certificate.ErrWaiting) || !strings.Contains(err.Error(), "kubectl certificate approve node-csr-") {
			t.Errorf("Certificate() = %v, want it to tell how to approve the request", err)
		}
		stop()
		k, stop = keep(t, directory, c, nil, c)
		defer stop()
		after(time.Minute)
		if n := len(c.times()); n != 1 {
			t.Errorf("requests after a restart = %d, want the first one again", n)
		}
		c.set(func(c *cluster) { c.approves = true })
		after(time.Minute)
		if _, err := k.Certificate(); err != nil {
			t.Errorf("Certificate() once approved = %v, want it", err)
		}
		if ends, err := k.Status(); err != nil || ends.IsZero() {
			t.Errorf("Status() = %v, %v, want its end", ends, err)
		}
		entries, err := os.ReadDir(directory)
		if err != nil || len(entries) != 1 || entries[0].Name() != certificate.FileCurrent {
			t.Fatalf("files = %v, %v, want %s alone", entries, err, certificate.FileCurrent)
		}
		if info, err := entries[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode = %v, %v, want 0600", info.Mode(), err)
		}
	})
}

func TestACertificateIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100*time.Hour)
		directory := t.TempDir()
		k, stop := keep(t, directory, c, c, c)
		after(time.Second)
		start := time.Now()
		first := serial(t, k)
		after(69 * time.Hour)
		if serial(t, k) != first {
			t.Errorf("certificate is renewed after 69 %% of its life, want not before 70 %%")
		}
		stop()
		k, stop = keep(t, directory, c, c, c) // the stored one is in use at once
		if serial(t, k) != first {
			t.Errorf("certificate after a restart is another, want the stored one")
		}
		after(22 * time.Hour)
		if serial(t, k) == first {
			t.Errorf("certificate is not renewed after %v of 100h", time.Since(start))
		}
		stop()
	})
}

// The monotonic clock stands still while a host sleeps, and the certificate's end does
// not wait for it.
func TestARenewalIsDueByTheWallClock(t *testing.T) {
	c, renewed := newCluster(t, time.Hour), make(chan struct{})
	k, err := certificate.New(certificate.Options{
		Node: "n", Directory: t.TempDir(), Bootstrap: c, Renewal: c, Try: c.try, Renewed: func() { close(renewed) }, Log: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	<-renewed
	cancel()
	<-done
	if at := k.RenewAt(); at != at.Round(0) {
		t.Errorf("the renewal is due at %v, want it without a reading of the monotonic clock", at)
	}
}

func TestTheOldCertificateIsUsedUntilTheNewOneWorks(t *testing.T) {
	for name, trouble := range map[string]func(*cluster){
		"nobody answers":              func(c *cluster) { c.approves = false },
		"it is denied":                func(c *cluster) { c.denies = true },
		"the server is away":          func(c *cluster) { c.away = errors.New("connection refused") },
		"the new one is not accepted": func(c *cluster) { c.rejects = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 10*time.Hour)
				directory := t.TempDir()
				k, stop := keep(t, directory, c, c, c)
				defer stop()
				after(time.Second)
				first := serial(t, k)
				stored, err := os.ReadFile(filepath.Join(directory, certificate.FileCurrent))
				if err != nil {
					t.Fatal(err)
				}
				c.set(trouble)
				after(9*time.Hour + 30*time.Minute)
				if serial(t, k) != first {
					t.Error("certificate is another, want the old one to stay")
				}
				if now, err := os.ReadFile(filepath.Join(directory, certificate.FileCurrent)); err != nil || !bytes.Equal(now, stored) {
					t.Errorf("stored certificate = %s, %v, want the old one", now, err)
				}
				if _, err := k.Status(); err == nil {
					t.Error("Status() = no error, want why there is no new one")
				}
				if n := len(c.times()); n > 50 {
					t.Errorf("requests = %d, want few", n)
				}
				c.set(func(c *cluster) { c.approves, c.denies, c.rejects, c.away = true, false, false, nil })
				after(10 * time.Minute)
				if serial(t, k) == first {
					t.Error("certificate is the old one, want a new one once there is no trouble")
				}
			})
		})
	}
}

func TestACertificateThatIsOverBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Hour)
		renewal := newCluster(t, time.Hour)
		renewal.away = errors.New("unauthorized")
		k, stop := keep(t, t.TempDir(), c, renewal, c)
		defer stop()
		after(time.Second)
		first := serial(t, k)
		after(59 * time.Minute)
		if serial(t, k) != first {
			t.Error("certificate is another, want the one that is still good")
		}
		after(5 * time.Minute)
		if serial(t, k) == first {
			t.Error("certificate is the one that is over, want one by the bootstrap's credentials")
		}
	})
}

// errUnknown is a server that does not know this node's certificate.
var errUnknown = fmt.Errorf("%w: %w", controlplane.ErrUnavailable, controlplane.ErrUnauthorized)

func TestACertificateThatTheServerDoesNotAcceptAnyMoreIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, renewal := newCluster(t, 1000*time.Hour), newCluster(t, 1000*time.Hour)
		renewal.away = errUnknown
		k, stop := keep(t, t.TempDir(), c, renewal, c)
		defer stop()
		after(time.Second)
		first := serial(t, k)
		c.set(func(c *cluster) { c.exchanged, c.approves = first, false })
		for range 1000 { // one with each request
			k.Doubt()
			after(time.Second)
		}
		var told *certificate.RefusedError
		if ends, err := k.Status(); !errors.As(err, &told) || !errors.Is(err, certificate.ErrWaiting) || told.Until != ends || ends.IsZero() {
			t.Errorf("Status() = %v, %v, want that it is refused and what the next one waits for", ends, err)
		}
		if got := serial(t, k); got != first {
			t.Errorf("the certificate in use = %d, want %d until there is another", got, first)
		}
		if n, asked := len(c.times()), c.tried; n != 2 || asked > 60 {
			t.Errorf("%d requests for a certificate, asked %d times whether one is accepted, want 2, and less and less often", n, asked)
		}
		c.set(func(c *cluster) { c.approves = true })
		after(time.Minute)
		if got := serial(t, k); got == first {
			t.Error("the certificate is the one that is not accepted")
		}
		if _, err := k.Status(); err != nil {
			t.Errorf("Status() = %v, want nothing amiss", err)
		}
	})
}

func TestADoubtThatPassesChangesNothing(t *testing.T) {
	for name, passes := range map[string]func(*cluster){
		"it was another's answer":              func(*cluster) {},
		"the server does not answer meanwhile": func(c *cluster) { c.tryErr = controlplane.ErrUnavailable },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1000*time.Hour)
				k, stop := keep(t, t.TempDir(), c, c, c)
				defer stop()
				after(time.Second)
				first := serial(t, k)
				c.set(passes)
				k.Doubt()
				after(time.Hour)
				c.set(func(c *cluster) { c.tryErr = nil })
				after(time.Minute)
				if _, err := k.Status(); err != nil || serial(t, k) != first || len(c.times()) != 1 {
					t.Errorf("Status() = %v, certificate %d after %d requests, want the first one still", err, serial(t, k), len(c.times()))
				}
			})
		})
	}
}

func TestARenewalThatIsNotAcceptedBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, renewal := newCluster(t, 100*time.Hour), newCluster(t, 100*time.Hour)
		renewal.away = errUnknown
		k, stop := keep(t, t.TempDir(), c, renewal, c)
		defer stop()
		after(time.Second)
		first := serial(t, k)
		c.set(func(c *cluster) { c.exchanged = first })
		after(95 * time.Hour)
		if serial(t, k) == first {
			_, err := k.Status()
			t.Errorf("certificate is the one that is not accepted, want another: %v", err)
		}
	})
}

func TestACertificateThatIsOldWhenItIsMadeCausesNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Minute)
		c.backdate = time.Hour
		_, stop := keep(t, t.TempDir(), c, c, c)
		defer stop()
		after(10 * time.Minute)
		if n := len(c.times()); n < 10 || n > 20 {
			t.Errorf("requests in 10 minutes = %d, want about one in 48 s", n)
		}
	})
}

func TestDamagedFilesAreNotFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, directory := newCluster(t, 24*time.Hour), t.TempDir()
		for _, file := range []string{certificate.FileCurrent, certificate.FilePending} {
			if err := os.WriteFile(filepath.Join(directory, file), []byte("-----BEGIN CERT"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		k, stop := keep(t, directory, c, c, c)
		defer stop()
		after(time.Second)
		serial(t, k)
		if _, err := os.Stat(filepath.Join(directory, certificate.FileCurrent+".damaged")); err != nil {
			t.Errorf("damaged file = %v, want it set aside", err)
		}
	})
}

func TestANodeWithoutAWayToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, time.Hour)
		k, stop := keep(t, t.TempDir(), nil, c, c)
		defer stop()
		after(time.Second)
		if _, err := k.Certificate(); err == nil || !strings.Contains(err.Error(), "bootstrapKubeconfig") {
			t.Errorf("Certificate() = %v, want a hint", err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		if parsed, err := certificate.Parse(text, "system:node:n"); (parsed == nil) == (err == nil) {
			t.Errorf("Parse() = %v, %v, want one of the two", parsed, err)
		}
	})
}
