//go:build integration

package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/test/kube"
)

// altered returns a Tamper that changes an object, also that of a watch event.
func altered(change func(object, metadata map[string]any)) kube.Tamper {
	return func(_ http.Header, body []byte) []byte {
		answer := map[string]any{}
		if json.Unmarshal(body, &answer) != nil {
			return body
		}
		object := answer
		if inner, reported := answer["object"].(map[string]any); reported {
			object = inner
		}
		if metadata, has := object["metadata"].(map[string]any); has {
			change(object, metadata)
		}
		text, err := json.Marshal(answer)
		if err != nil {
			return body
		}
		return text
	}
}

// ofAnother returns another object than the requested one.
func ofAnother(header http.Header, body []byte) []byte {
	return altered(func(_, metadata map[string]any) {
		if metadata["name"] != nil {
			metadata["name"] = "another"
		}
	})(header, body)
}

// says returns a Tamper that replaces every answer. An empty kind keeps the content type.
func says(kind, text string) kube.Tamper {
	return func(header http.Header, _ []byte) []byte {
		if kind != "" {
			header.Set("Content-Type", kind)
		}
		return []byte(text)
	}
}

// second returns a Tamper that changes only the second answer.
func second(tamper kube.Tamper) kube.Tamper {
	var answers atomic.Int32
	return func(header http.Header, body []byte) []byte {
		if answers.Add(1) != 2 {
			return body
		}
		return tamper(header, body)
	}
}

const forPeople = "<html><body>please log in</body></html>"

// tamperings are the wrong answers that a client has to detect. Some apply only to certain calls.
var tamperings = map[string]struct {
	tamper kube.Tamper
	calls  []string
}{
	"another object": {
		tamper: ofAnother, // a list has no such object
		calls:  slices.DeleteFunc(slices.Collect(maps.Keys(calls)), func(call string) bool { return call == "Fleet()" }),
	},
	"another object in a watch alone": {
		tamper: func(header http.Header, body []byte) []byte {
			if !strings.HasPrefix(string(body), `{"type":`) {
				return body
			}
			return ofAnother(header, body)
		},
		calls: []string{"WatchNode()"},
	},
	"an object of another kind": {tamper: altered(func(object, _ map[string]any) { object["kind"], object["apiVersion"] = "ConfigMap", "v1" })},
	"an object of another UID": {
		tamper: altered(func(_, metadata map[string]any) { metadata["uid"] = "11111111-2222-4333-8444-555555555555" }),
		calls:  []string{"UpdateStatus()", "UpdateConditions()"}, // other calls accept any object of that name
	},
	"half of it":            {tamper: func(_ http.Header, body []byte) []byte { return body[:len(body)/2] }},
	"nothing":               {tamper: says("", "")},
	"an object of no kind":  {tamper: says("", "{}")},
	"a page":                {tamper: says("text/html", forPeople)},
	"a page that says JSON": {tamper: says("application/json", forPeople)},
	"a page once it was read": {
		tamper: second(says("text/html", forPeople)), // the answer to a deletion, whose content no caller needs
		calls:  []string{"Leave()"},
	},
}

// tampered is a client with a Node, whose server can be tampered with.
type tampered struct {
	*kubernetes.Client
	node *corev1.Node
}

// calls are the calls of an agent. Each changes the stored object.
var calls = map[string]func(context.Context, tampered) error{
	"Node()":  func(ctx context.Context, l tampered) error { _, err := l.Node(ctx, l.node.Name); return err },
	"Lease()": func(ctx context.Context, l tampered) error { _, err := l.Lease(ctx, l.node.Name); return err },
	"Register() of a new node": func(ctx context.Context, l tampered) error {
		_, err := l.Register(ctx, newNode(l.node.Name+"-new"), controlplane.RegisterOptions{})
		return err
	},
	"Register() again": func(ctx context.Context, l tampered) error {
		wanted := newNode(l.node.Name)
		wanted.Labels = map[string]string{"example.com/rack": "r2"}
		_, err := l.Register(ctx, wanted, controlplane.RegisterOptions{})
		return err
	},
	"UpdateStatus()": func(ctx context.Context, l tampered) error { _, err := l.UpdateStatus(ctx, l.changed()); return err },
	"UpdateConditions()": func(ctx context.Context, l tampered) error {
		_, err := l.UpdateConditions(ctx, l.changed(), nil)
		return err
	},
	"Cordon()": func(ctx context.Context, l tampered) error {
		_, err := l.Cordon(ctx, l.node.Name, true, false)
		return err
	},
	"RenewLease()": func(ctx context.Context, l tampered) error {
		lease, err := controlplane.NewLease(l.node.Name+"-new", controlplane.Identity{MachineID: "m"}, 40*time.Second)
		if err == nil {
			_, err = l.RenewLease(ctx, controlplane.Renew(lease, time.Now()))
		}
		return err
	},
	"PublishEvent()": func(ctx context.Context, l tampered) error {
		return l.PublishEvent(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: l.node.Name + ".1"}, InvolvedObject: controlplane.NodeReference(l.node.Name),
			Type: corev1.EventTypeNormal, Reason: "Test", Message: "lied to", LastTimestamp: metav1.Now(),
		})
	},
	"Fleet()": func(ctx context.Context, l tampered) error {
		return l.Fleet(ctx, func(*corev1.Node, *coordinationv1.Lease) error { return nil })
	},
	"Leave()": func(ctx context.Context, l tampered) error { return l.Leave(ctx, l.node.Name, controlplane.Identity{}) },
	"WatchNode()": func(ctx context.Context, l tampered) error {
		seen, ended := make(chan *corev1.Node), make(chan error, 1)
		go func() { ended <- l.WatchNode(ctx, l.node.Name, seen) }()
		for {
			select {
			case n := <-seen:
				if n == nil || n.Name != l.node.Name || n.UID != l.node.UID {
					return fmt.Errorf("%v was believed", n)
				}
			case err := <-ended:
				return err
			}
		}
	},
}

// changed returns the Node with a new status.
func (l tampered) changed() *corev1.Node {
	node := newNode(l.node.Name)
	node.UID = l.node.UID
	node.Status.Conditions = []corev1.NodeCondition{{Type: "hostler.io/LiedTo", Status: corev1.ConditionTrue, Reason: "Test"}}
	return node
}

// A proxy between host and server may have a cache, or show a login page, and still have a valid
// certificate.
func TestAServerWithWrongAnswersIsNotBelieved(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	tamperer, err := cluster.NewTamperer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tamperer.Close() })
	text, err := os.ReadFile(cluster.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client := open(t, write(t, "kubeconfig", strings.ReplaceAll(string(text), cluster.Server, "https://"+tamperer.Address)))
	number := 0
	for reported, tamper := range tamperings {
		for name, call := range calls {
			if tamper.calls != nil && !slices.Contains(tamper.calls, name) {
				continue
			}
			t.Run(name+" answered by "+reported, func(t *testing.T) {
				number++
				l := tampered{Client: client, node: mustRegister(t, client, newNode(fmt.Sprint("lied-to-", number)), controlplane.RegisterOptions{})}
				if _, err := client.RenewLease(patient(t), newLease(t, l.node.Name)); err != nil {
					t.Fatal(err)
				}
				tamperer.Use(tamper.tamper)
				err := within(t, patience, func(ctx context.Context) error { return call(ctx, l) })
				tamperer.Use(nil)
				if !errors.Is(err, controlplane.ErrUnavailable) {
					t.Errorf("%s = %v, want %v", name, err, controlplane.ErrUnavailable)
				}
				if name == "Leave()" { // it may be deleted
					return
				}
				if stored, err := client.UpdateStatus(patient(t), l.changed()); err != nil || stored.UID != l.node.UID {
					t.Errorf("UpdateStatus() once the server answers correctly = %v, %v, want it written", stored, err)
				}
			})
		}
	}
}
