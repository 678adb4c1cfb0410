package kubernetes_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

const tooOld = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired","message":"too old resource version"}}`

// A restarted server knows no earlier changes, and the Node may not have changed since.
func TestANodeThatIsOlderThanTheServerIsWatched(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reads, watches := 0, 0
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch query := r.URL.Query(); {
		case !query.Has("watch"):
			reads++
			respond(w, nodeText)
		case query.Get("resourceVersion") != "0":
			if watches++; watches > 100 {
				cancel()
			}
			respond(w, tooOld)
		default:
			respond(w, `{"type":"ADDED","object":`+nodeText+`}`+"\n"+`{"type":"MODIFIED","object":`+strings.Replace(nodeText, `"resourceVersion":"1"`, `"resourceVersion":"7"`, 1)+`}`+"\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	seen, ended := make(chan *corev1.Node), make(chan error, 1)
	go func() { ended <- client.WatchNode(ctx, "n", seen) }()
	for _, want := range []string{"1", "7"} {
		select {
		case n := <-seen:
			if n == nil || n.ResourceVersion != want {
				t.Errorf("WatchNode() reports %+v, want version %s", n, want)
			}
		case err := <-ended:
			t.Fatalf("WatchNode() = %v after %d reads and %d watches, want it to report version %s", err, reads, watches, want)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || reads != 1 {
		t.Errorf("WatchNode() = %v after %d reads, want it cancelled after 1", err, reads)
	}
}

// A watch may begin at an old state of the store. What it reports from before the read is not reported: the Node was
// deleted and created again since.
func TestAWatchReportsNothingFromBeforeTheRead(t *testing.T) {
	change := func(kind, uid, version string) string {
		node := strings.Replace(nodeText, `"resourceVersion":"1"`, `"resourceVersion":"`+version+`"`, 1)
		return `{"type":"` + kind + `","object":` + strings.Replace(node, `"uid":"u"`, `"uid":"`+uid+`"`, 1) + "}\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			respond(w, strings.Replace(nodeText, `"resourceVersion":"1"`, `"resourceVersion":"20"`, 1))
			return
		}
		respond(w, change("ADDED", "old", "8")+change("DELETED", "old", "19")+change("ADDED", "u", "20")+change("DELETED", "u", "21"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	seen, ended := make(chan *corev1.Node), make(chan error, 1)
	go func() { ended <- client.WatchNode(ctx, "n", seen) }()
	for i, want := range []string{"20", ""} {
		select {
		case n := <-seen:
			if version := versionOf(n); version != want {
				t.Errorf("report %d of WatchNode() has version %q, want %q", i, version, want)
			}
		case err := <-ended:
			t.Fatalf("WatchNode() = %v, want %d more reports", err, 2-i)
		}
	}
	cancel()
	<-ended
}

// versionOf returns the version of a Node; an empty one for none.
func versionOf(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.ResourceVersion
}

// The client does not retry faster than its caller, who backs off.
func TestAWatchThatIsEndedAtOnceIsNotBegunAgainAndAgain(t *testing.T) {
	for name, end := range map[string]string{
		"without a word":         "",
		"what came after is old": tooOld,
		"with the node":          `{"type":"MODIFIED","object":` + nodeText + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			watches := 0
			client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				if !r.URL.Query().Has("watch") {
					respond(w, nodeText)
					return
				}
				if watches++; watches > 100 {
					cancel()
				}
				respond(w, end)
			}))
			seen := make(chan *corev1.Node)
			go func() {
				for {
					select {
					case <-seen:
					case <-ctx.Done():
						return
					}
				}
			}()
			if err := client.WatchNode(ctx, "n", seen); !errors.Is(err, controlplane.ErrUnavailable) {
				t.Errorf("WatchNode() = %v after %d watches, want it unavailable soon", err, watches)
			}
		})
	}
}
