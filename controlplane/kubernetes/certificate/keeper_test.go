package certificate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
)

func TestANodeWaitsForItsApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, directory := newCluster(t, 24*time.Hour), filepath.Join(t.TempDir(), "pki")
		c.approves = false
		k, stop := keep(t, directory, c, nil, c)
		after(time.Minute)
		_, err := k.Certificate()
		if !errors.As(err, new(*certificate.WaitingError)) || !strings.Contains(err.Error(), "kubectl certificate approve node-csr-") {
			t.Errorf("Certificate() = %v, want it to say how to approve the request", err)
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
		k, stop = keep(t, directory, c, c, c) // the stored certificate is used at once
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

// The monotonic clock stops while a host is suspended, but the certificate still ends.
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

func TestACertificateThatIsOverBeginsAgain(t *testing.T) {
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

// errUnknown is the error of a server that does not know this node's certificate.
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
		for range 1000 { // one for each request
			k.Doubt()
			after(time.Second)
		}
		var reported *certificate.RefusedError
		if ends, err := k.Status(); !errors.As(err, &reported) || !errors.As(err, new(*certificate.WaitingError)) || reported.Until != ends || ends.IsZero() {
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

func TestARenewalThatIsNotAcceptedBeginsAgain(t *testing.T) {
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

// The clients doubt a certificate that has ended when the server rejects it.
func TestCertificatesWithoutALifeAreRequestedLessAndLessOften(t *testing.T) {
	for _, life := range []time.Duration{0, -time.Hour, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, life)
			k, stop := keep(t, t.TempDir(), c, c, c)
			for range 600 {
				after(time.Second)
				k.Doubt()
			}
			if n := len(c.times()); n < 20 || n > 40 {
				t.Errorf("%d requests in ten minutes for certificates of %v, want one each 30 seconds in the end", n, life)
			}
			c.set(func(c *cluster) { c.life = 100 * time.Hour })
			after(time.Minute)
			if certificate, err := k.Certificate(); err != nil || time.Until(certificate.Leaf.NotAfter) < 99*time.Hour {
				t.Errorf("Certificate() = %v, %v, want one with a life", certificate, err)
			}
			stop()
		})
	}
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

func TestANodeThatCannotRequestACertificate(t *testing.T) {
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
