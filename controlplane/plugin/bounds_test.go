package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/controlplane/plugin/plugintest"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
	"hostler.io/hostler/test/flood"
)

// mostTaken is how much of an answer that is too large a client may read: what HTTP/2 has in
// flight, and a limit of 4 MiB, or 8 MiB for a list.
const mostTaken = 16 << 20

func TestAnswersThatAreTooLargeAreNotTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		method string
		want   error
		call   func(context.Context, *plugin.Store) error
	}{
		"Info": {v1.ControlPlane_Info_FullMethodName, controlplane.ErrUnavailable, func(ctx context.Context, s *plugin.Store) error { return s.Probe(ctx) }},
		"Get": {v1.ControlPlane_Get_FullMethodName, controlplane.ErrUnavailable, func(ctx context.Context, s *plugin.Store) error {
			_, err := s.Get(ctx, node)
			return err
		}},
		"List": {v1.ControlPlane_List_FullMethodName, controlplane.ErrUnavailable, func(ctx context.Context, s *plugin.Store) error {
			_, _, err := s.List(ctx, objects.Node, "", "")
			return err
		}},
		"Put": {v1.ControlPlane_Put_FullMethodName, controlplane.ErrInvalid, func(ctx context.Context, s *plugin.Store) error {
			_, err := s.Put(ctx, node, objects.Put{Value: []byte("n")})
			return err
		}},
		"Watch": {v1.ControlPlane_Watch_FullMethodName, controlplane.ErrUnavailable, func(ctx context.Context, s *plugin.Store) error {
			return s.Watch(ctx, node, make(chan objects.Object))
		}},
	} {
		// The last one is only within the limit of a page.
		for _, claimed := range []int{300 << 20, 9 << 20, 6 << 20} {
			if claimed == 6<<20 && name == "List" {
				continue
			}
			t.Run(fmt.Sprintf("%s of %d MiB", name, claimed>>20), func(t *testing.T) {
				path := socket(t)
				listener, err := net.Listen("unix", path)
				check(t, err)
				server := grpc.NewServer()
				v1.RegisterControlPlaneServer(server, &plugintest.Server{})
				taken := make(chan int, 100)
				flood.Serve(t, listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != tt.method {
						server.ServeHTTP(w, r)
						return
					}
					taken <- flood.Message(w, claimed)
				}))
				err = tt.call(t.Context(), openWithin(t, path, 5*time.Minute)) // 100 MiB take long on a busy machine
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), "larger than max") {
					t.Errorf("%s = %v, want %v, since the answer is too large", name, err, tt.want)
				}
				if n := <-taken; n > mostTaken {
					t.Errorf("%s took %d MiB, want at most %d", name, n>>20, mostTaken>>20)
				} else {
					t.Logf("%s took %d KiB: %v", name, n>>10, err)
				}
			})
		}
	}
}
