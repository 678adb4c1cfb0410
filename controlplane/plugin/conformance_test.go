package plugin_test

import (
	"bytes"
	"context"
	"flag"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/controlplane/plugin/plugintest"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
)

var update = flag.Bool("update", false, "rewrite the results of the conformance checks")

// A plugin may refuse a write without returning the stored object.
func TestAPluginKeepsWhatAStorePromises(t *testing.T) {
	for name, tacit := range map[string]bool{"that returns the stored object": false, "that returns only that the swap failed": true} {
		t.Run(name, func(t *testing.T) {
			objectstest.Run(t, func(t *testing.T) objects.Store { return with(t, &plugintest.Server{NoObject: tacit}) })
		})
	}
}

func TestConformance(t *testing.T) {
	t.Parallel() // it mostly waits for deadlines
	controlplanetest.Record(t, plugin.Type, *update, func(t *testing.T) controlplanetest.Backend { return backend(t, false) })
}

func TestConformanceOfAPluginThatReturnsNoObjectOnAConflict(t *testing.T) {
	t.Parallel() // it mostly waits for deadlines
	controlplanetest.Run(t, func(t *testing.T) controlplanetest.Backend { return backend(t, true) })
}

// callTimeout is the deadline of each call. A busy machine answers in that time; a plugin that does not
// answer is waited for that long.
const callTimeout = 10 * time.Second

// backend returns a client of a plugin with faults.
func backend(t *testing.T, tacit bool) controlplanetest.Backend {
	path, h := socket(t), &hindrance{}
	serve(t, path, &plugintest.Server{NoObject: tacit, Fault: h.before, Answer: h.after})
	elsewhere := open(t, path)
	return controlplanetest.Backend{
		Client: objects.New(openWithin(t, path, callTimeout), objects.Options{}),
		RequestPace: func(ctx context.Context, duration string) error {
			return objectstest.RequestPace(ctx, elsewhere, duration)
		},
		Expires: true,
		Inject:  h.injectFault,
		Restart: func(context.Context) (controlplane.Client, error) {
			return objects.New(openWithin(t, path, callTimeout), objects.Options{}), nil
		},
	}
}

// hindrance is the fault of a plugin's answers.
type hindrance struct{ fault atomic.Value }

// injectFault is the Inject of a conformance.Backend.
func (h *hindrance) injectFault(f conformance.Fault) (restore func(), err error) {
	h.fault.Store(f)
	return func() { h.fault.Store(conformance.Fault("")) }, nil
}

func (h *hindrance) before(ctx context.Context, _ string) error {
	switch h.fault.Load() {
	case conformance.Slow:
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done(): // it may end here before it ends at the caller
			return ctx.Err()
		}
	case conformance.NoAnswer:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (h *hindrance) after(_ string, answer any) error {
	switch h.fault.Load() {
	case conformance.Lost:
		return status.Error(codes.Unavailable, "the connection to what is behind is lost")
	case conformance.WrongObject:
		if got, is := answer.(*v1.GetResponse); is {
			o := got.GetObject()
			got.Object = &v1.Object{
				Key: o.GetKey(), Version: o.GetVersion(),
				Value: bytes.ReplaceAll(o.GetValue(), []byte(o.GetKey().GetNode()), []byte("another")),
			}
		}
	}
	return nil
}

// Another client may have stored it: hostler does not accept it as a Node, and does not overwrite
// it.
func TestAValueOfAnotherKindOrNameIsNotBelieved(t *testing.T) {
	for name, value := range map[string]string{
		"another name": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"other"}}`,
		"another kind": `{"apiVersion":"v1","kind":"Event","metadata":{"name":"n"}}`,
		"no JSON":      `<html>`,
	} {
		store := with(t, &plugintest.Server{})
		version := put(t, store, node, value, objects.None)
		client := objects.New(store, objects.Options{})
		if n, err := client.Node(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "nodes/n") {
			t.Errorf("Node() of %s = %v, %v, want an error that names the key", name, n, err)
		}
		wanted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		if n, err := client.Register(t.Context(), wanted, controlplane.RegisterOptions{}); err == nil {
			t.Errorf("Register() instead of %s = %v, want an error", name, n)
		}
		if o, err := store.Get(t.Context(), node); err != nil || o.Version != version {
			t.Errorf("what is stored after it is %+v, %v, want it as it was", o, err)
		}
	}
}

// A plugin may choose whether objects expire. Without expiry, it breaks no promise.
func TestAPluginIsVerifiedForWhatItSaysThatItCan(t *testing.T) {
	t.Parallel() // it mostly waits for deadlines
	for name, c := range map[string]struct {
		lasting bool
		want    conformance.Status
	}{
		"one that ends objects":  {false, conformance.OK},
		"one whose objects stay": {true, conformance.Absent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := objects.New(with(t, &plugintest.Server{Lasting: c.lasting, About: func(a *v1.InfoResponse) {
				if c.lasting {
					a.Abilities = []v1.Ability{v1.Ability_ABILITY_LIST}
				}
			}}), objects.Options{})
			checks := slices.DeleteFunc(conformance.Checks(), func(c conformance.Check) bool { return !strings.Contains(c.Name, "lease that is not renewed") })
			found, err := conformance.Verify(t.Context(), &conformance.Backend{Client: client, Prefix: conformance.NewPrefix()}, checks, nil)
			if err != nil || len(found) != 1 || found[0].Status != c.want {
				t.Errorf("Verify() of %s = %+v, %v, want it %s", name, found, err, c.want)
			}
			if ends := controlplane.EndsLeases(client); ends == c.lasting {
				t.Errorf("EndsLeases() = %v, want %v", ends, !c.lasting)
			}
		})
	}
}
