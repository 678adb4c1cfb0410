package lab

import (
	"context"
	"os"
	"strings"
	"testing"
)

// In is Current for tests: without a lab, it ends the test.
func In(tb testing.TB) *Lab {
	tb.Helper()
	l, err := Current()
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// LoginFor is StartLogin for the time of a test. If the test fails, it logs logind's output.
func LoginFor(tb testing.TB, o LoginOptions) *Login {
	tb.Helper()
	g, err := In(tb).StartLogin(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// The test's own context has ended by now.
		if err := g.Close(context.Background()); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("log of logind:\n%s", g.Logind.Log(50))
		}
	})
	return g
}

// TreeFor is WithTree for the time of a test.
func TreeFor(tb testing.TB, tree string) *Lab {
	tb.Helper()
	l, remove, err := In(tb).WithTree(tree)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := remove(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

// ContainerdFor is StartContainerd for the time of a test. If the test fails, it logs containerd's
// output.
func ContainerdFor(tb testing.TB, o ContainerdOptions) *Containerd {
	tb.Helper()
	return In(tb).ContainerdFor(tb, o)
}

// ContainerdFor is the function ContainerdFor for this lab.
func (l *Lab) ContainerdFor(tb testing.TB, o ContainerdOptions) *Containerd {
	tb.Helper()
	c, err := l.StartContainerd(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of containerd:\n%s", c.Log(50))
		}
		if err := c.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// RuncFor is NewRunc for the time of a test.
func RuncFor(tb testing.TB, root string) *Runc {
	tb.Helper()
	return In(tb).RuncFor(tb, root)
}

// RuncFor is the function RuncFor for this lab.
func (l *Lab) RuncFor(tb testing.TB, root string) *Runc {
	tb.Helper()
	r, err := l.NewRunc(root)
	return forTest(tb, r, err)
}

// CrunFor is NewCrun for the time of a test.
func CrunFor(tb testing.TB, root string) *Runc {
	tb.Helper()
	return In(tb).CrunFor(tb, root)
}

// CrunFor is the function CrunFor for this lab.
func (l *Lab) CrunFor(tb testing.TB, root string) *Runc {
	tb.Helper()
	r, err := l.NewCrun(root)
	return forTest(tb, r, err)
}

// Setenv sets environment variables so that programs of the test find this runtime and its
// libraries.
func (r *Runc) Setenv(tb testing.TB) {
	tb.Helper()
	for _, variable := range r.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		tb.Setenv(name, value)
	}
}

func forTest(tb testing.TB, r *Runc, err error) *Runc {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r
}

// DockerFor is StartDocker for the time of a test. If the test fails, it logs dockerd's output.
func DockerFor(tb testing.TB, o DockerOptions) *Docker {
	tb.Helper()
	d, err := In(tb).StartDocker(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of dockerd:\n%s", d.Log(50))
		}
		if err := d.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return d
}

// PodmanFor is StartPodman for the time of a test. If the test fails, it logs the service's output.
func PodmanFor(tb testing.TB, o PodmanOptions) *Podman {
	tb.Helper()
	return In(tb).PodmanFor(tb, o)
}

// PodmanFor is the function PodmanFor for this lab.
func (l *Lab) PodmanFor(tb testing.TB, o PodmanOptions) *Podman {
	tb.Helper()
	p, err := l.StartPodman(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("log of podman:\n%s", p.Log(50))
		}
		if err := p.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// Long reports whether tests run in their long forms: make test-long.
func Long() bool { return os.Getenv("HOSTLER_TEST_LONG") != "" }

// TakesMinutes skips a test unless tests run in their long forms. Other tests show the kind.
func TakesMinutes(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("takes minutes: run make test-long")
	}
}
