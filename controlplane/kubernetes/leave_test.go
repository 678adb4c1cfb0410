package kubernetes_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"hostler.io/hostler/controlplane"
)

// closed reports whether the posted Node is unschedulable.
func closed(t *testing.T, body []byte) bool {
	t.Helper()
	var envelope runtime.Unknown
	var node corev1.Node
	err := envelope.Unmarshal(bytes.TrimPrefix(body, []byte("k8s\x00")))
	if err := errors.Join(err, node.Unmarshal(envelope.Raw)); err != nil {
		t.Errorf("read the Node: %v", err)
	}
	return node.Spec.Unschedulable
}

// A server may restart at that moment.
func TestACordonOutlivesAServerThatDiesBetweenDeletingAndCreating(t *testing.T) {
	for name, lost := range map[string]string{
		"after it has answered":           "",
		"before it could answer":          http.MethodDelete,
		"or something before it answered": "proxy",
	} {
		t.Run(name, func(t *testing.T) {
			node := `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"old","resourceVersion":"1"},"spec":{"unschedulable":true},"status":{"nodeInfo":{"machineID":"another"}}}`
			down := false
			client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case down:
					refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", "starting")
				case strings.Contains(r.URL.Path, "leases"):
					refuse(w, http.StatusNotFound, "NotFound", "there is none")
				case r.Method == http.MethodDelete:
					node, down = "", true
					switch lost {
					case http.MethodDelete:
						panic(http.ErrAbortHandler)
					case "proxy":
						refuse(w, http.StatusBadGateway, "BadGateway", "no answer")
					default:
						respond(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
					}
				case r.Method == http.MethodPost && node != "":
					refuse(w, http.StatusConflict, "AlreadyExists", "it is there")
				case r.Method == http.MethodPost:
					body, _ := io.ReadAll(r.Body)
					node = fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"new","resourceVersion":"2"},"spec":{"unschedulable":%t}}`, closed(t, body))
					respond(w, node)
				default:
					respond(w, node)
				}
			}))
			var replaced int
			options := controlplane.RegisterOptions{Takeover: true, Replaces: func(*corev1.Node) { replaced++ }}
			if _, err := client.Register(t.Context(), newNode("n"), options); err == nil || !down {
				t.Fatalf("Register() while the server dies = %v, want an error after the Node is deleted", err)
			}
			down = false
			stored, err := client.Register(t.Context(), newNode("n"), options)
			if err != nil || stored.UID != "new" || !stored.Spec.Unschedulable || replaced != 1 {
				t.Errorf("Register() afterwards = %+v, %v, %d reports, want a new node with the cordon of the old one, and one report", stored, err, replaced)
			}
		})
	}
}
