package api_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
)

func TestAFleetIsReportedHostByHost(t *testing.T) {
	socket, _ := serve(t, routes(&backend{}))
	var names []string
	whose, err := api.NewClient(socket).Fleet(t.Context(), func(m fleet.Member) error {
		names = append(names, m.Node.Name)
		return nil
	})
	if err != nil || whose.Node != "a" || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("Fleet() = %+v, %v after %q, want that of a, after a and b", whose, err, names)
	}
	if m, err := api.NewClient(socket).Member(t.Context(), "rack/1 %"); err != nil || m.Node.Name != "rack/1 %" {
		t.Errorf("Member() = %+v, %v, want the name to arrive as it is", m, err)
	}
}

func TestAFleetThatCannotBeReportedSaysWhy(t *testing.T) {
	why := &api.Error{Message: "list nodes: forbidden", Hint: "ask somebody who may"}
	socket, _ := serve(t, routes(&backend{err: why}))
	_, err := api.NewClient(socket).Fleet(t.Context(), func(fleet.Member) error { return nil })
	if got, ok := errors.AsType[*api.Error](err); !ok || *got != *why {
		t.Errorf("Fleet() = %v, want %v", err, why)
	}
	enough := errors.New("enough")
	socket, _ = serve(t, routes(&backend{}))
	if _, err := api.NewClient(socket).Fleet(t.Context(), func(fleet.Member) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("Fleet() = %v after its callback returned an error, want that error", err)
	}
}

func TestAFleetThatBreaksOffIsNoWholeOne(t *testing.T) {
	socket, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"member":{"node":{"metadata":{"name":"a"}}}}` + "\n"))
	}))
	_, err := api.NewClient(socket).Fleet(t.Context(), func(fleet.Member) error { return nil })
	if gone := new(api.UnreachableError); !errors.As(err, &gone) || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("Fleet() = %v, want that it broke off", err)
	}
}

// endless returns hosts until it is stopped.
type endless struct {
	*backend
	ended chan error
}

func (e endless) Fleet(ctx context.Context, each func(fleet.Member) error) (fleet.Fleet, error) {
	for {
		if err := errors.Join(ctx.Err(), each(fleet.Member{Node: &corev1.Node{}})); err != nil {
			e.ended <- err
			return fleet.Fleet{}, err
		}
	}
}

func TestAControlPlaneIsNotAskedForACallerWhoHasGone(t *testing.T) {
	e := endless{&backend{}, make(chan error, 1)}
	socket, _ := serve(t, api.Routes(e, http.NotFoundHandler(), slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := api.NewClient(socket).Fleet(ctx, func(fleet.Member) error {
		cancel()
		return nil
	})
	if err == nil { // the error depends on where the answer is cut off
		t.Error("Fleet() = nil for a caller who has gone, want an error")
	}
	if err := <-e.ended; err == nil {
		t.Error("the agent went on")
	}
}
