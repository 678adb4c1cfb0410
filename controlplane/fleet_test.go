package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// pages splits names into pages of objects; an empty name is an empty page.
func pages[T any](names string, object func(name string) T) controlplane.Pages[T] {
	list := strings.Split(names, "|")
	return func(_ context.Context, page string) (objects []T, next string, err error) {
		n := 0
		if page != "" {
			if n, err = strconv.Atoi(page); err != nil {
				return nil, "", err
			}
		}
		for name := range strings.FieldsSeq(list[n]) {
			objects = append(objects, object(name))
		}
		if n+1 < len(list) {
			next = strconv.Itoa(n + 1)
		}
		return objects, next, nil
	}
}

func nodeNamed(name string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func leaseNamed(name string) coordinationv1.Lease {
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestANodeOfAFleetIsReportedWithItsLeaseWhateverPagesTheyAreOn(t *testing.T) {
	for name, c := range map[string]struct{ nodes, leases, want string }{
		"one page of each":               {"a b c", "a b c", "a+ b+ c+"},
		"no node":                        {"", "a b", ""},
		"no lease":                       {"a b", "", "a b"},
		"leases on later pages":          {"a b|c d", "a|b|c|d", "a+ b+ c+ d+"},
		"nodes on later pages":           {"a|b|c|d", "a b c d", "a+ b+ c+ d+"},
		"leases of no node":              {"b|d", "a|b c|d e|f", "b+ d+"},
		"nodes without one":              {"a b c|d e", "b|e", "a b+ c d e+"},
		"pages with nothing on them":     {"a||b|", "|a|||b|", "a+ b+"},
		"names that are parts of others": {"a a-1 a.b a1", "a-1 a.b", "a a-1+ a.b+ a1"},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []string
			err := controlplane.JoinFleet(t.Context(), pages(c.nodes, nodeNamed), pages(c.leases, leaseNamed), func(node *corev1.Node, lease *coordinationv1.Lease) error {
				what := node.Name
				if lease != nil {
					what += "+"
					if lease.Name != node.Name {
						t.Errorf("node %s was returned with lease %s", node.Name, lease.Name)
					}
				}
				reported = append(reported, what)
				return nil
			})
			if got := strings.Join(reported, " "); err != nil || got != c.want {
				t.Errorf("JoinFleet() returned %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestAnErrorOfTheCallerEndsAFleet(t *testing.T) {
	enough := errors.New("enough")
	var reported []string
	err := controlplane.JoinFleet(t.Context(), pages("a b|c", nodeNamed), pages("", leaseNamed), func(node *corev1.Node, _ *coordinationv1.Lease) error {
		if reported = append(reported, node.Name); node.Name == "b" {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || !slices.Equal(reported, []string{"a", "b"}) {
		t.Errorf("JoinFleet() = %v after %v, want that it was enough after a and b", err, reported)
	}
}

func TestAPageThatIsNotReadEndsAFleet(t *testing.T) {
	broken := func(after int) error {
		read := 0
		fails := func(ctx context.Context, page string) ([]coordinationv1.Lease, string, error) {
			if read++; read > after {
				return nil, "", fmt.Errorf("list leases: %w", controlplane.ErrUnavailable)
			}
			return pages("a|b", leaseNamed)(ctx, page)
		}
		return controlplane.JoinFleet(t.Context(), pages("a b", nodeNamed), fails, func(*corev1.Node, *coordinationv1.Lease) error { return nil })
	}
	for after := range 2 {
		if err := broken(after); !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("JoinFleet() = %v where page %d of the leases is not read, want its error", err, after+1)
		}
	}
	if err := broken(2); err != nil {
		t.Errorf("JoinFleet() = %v where all are, want no error", err)
	}
}

func TestFewSkippedObjectsAreNamed(t *testing.T) {
	var skipped controlplane.Skipped
	if err := skipped.Err(); err != nil {
		t.Errorf("Err() of none = %v, want nil", err)
	}
	for i := range 1000 {
		skipped.Add(fmt.Errorf("node %d", i))
	}
	err := skipped.Err()
	if !errors.Is(err, controlplane.ErrIncomplete) || !strings.HasSuffix(err.Error(), "\nnode 9\nand 990 more") {
		t.Errorf("Err() of 1,000 = %v, want ten names, and the number of the others", err)
	}
}
