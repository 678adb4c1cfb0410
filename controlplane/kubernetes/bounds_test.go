package kubernetes_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/test/flood"
)

// mostAllocated is how much a client may allocate for an answer that is too large: several times
// its limit of 4 MiB, or of 8 MiB for each of three attempts at a list, because its buffers grow.
// The race detector doubles it.
const mostAllocated = 200 << 20

// flooded calls a client of a server with that answer. It returns the error and checks the
// allocations.
func flooded(t *testing.T, answer http.HandlerFunc, call func(context.Context, controlplane.Client) error) error {
	t.Helper()
	client := dial(t, serve(t, answer))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	allocated := flood.Allocated(func() { err = call(ctx, client) })
	if t.Logf("allocated %d MiB: %v", allocated>>20, err); allocated > mostAllocated {
		t.Errorf("the client allocated %d MiB, want at most %d", allocated>>20, mostAllocated>>20)
	}
	return err
}

func TestAnswersThatAreTooLargeAreNotTaken(t *testing.T) {
	const begin = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","annotations":{"a":"`
	bomb := flood.Bomb(begin, "x")
	calls := map[string]func(context.Context, controlplane.Client) error{
		"a Node":  func(ctx context.Context, c controlplane.Client) error { _, err := c.Node(ctx, "n"); return err },
		"a Lease": func(ctx context.Context, c controlplane.Client) error { _, err := c.Lease(ctx, "n"); return err },
		"a list": func(ctx context.Context, c controlplane.Client) error {
			return c.(controlplane.FleetLister).Fleet(ctx, func(*corev1.Node, *coordinationv1.Lease) error { return nil })
		},
		"the start of a watch": func(ctx context.Context, c controlplane.Client) error {
			return c.(controlplane.NodeWatcher).WatchNode(ctx, "n", make(chan *corev1.Node))
		},
	}
	answers := map[string]func(w http.ResponseWriter){
		"endless":  func(w http.ResponseWriter) { flood.Write(w, begin, "x") },
		"a bomb":   func(w http.ResponseWriter) { flood.Drop(w, http.StatusOK, bomb) },
		"an error": func(w http.ResponseWriter) { w.WriteHeader(http.StatusConflict); flood.Write(w, begin, "x") },
		"protobuf": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			flood.Write(w, "k8s\x00", "x")
		},
		"a 401": func(w http.ResponseWriter) { flood.Drop(w, http.StatusUnauthorized, bomb) },
	}
	for what, call := range calls {
		for how, answer := range answers {
			refusal := how == "an error" || how == "a 401"
			if what == "the start of a watch" && !refusal {
				continue // an event of a watch
			}
			t.Run(what+" "+how, func(t *testing.T) {
				err := flooded(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					answer(w)
				}, call)
				if !errors.Is(err, controlplane.ErrUnavailable) {
					t.Errorf("the call = %v, want it unavailable", err)
				}
				if !refusal && !strings.Contains(err.Error(), "MiB: check whether the server's address") {
					t.Errorf("the call = %v, want what to do about it", err)
				}
			})
		}
	}
}

func TestAnEventThatIsTooLargeIsNotTaken(t *testing.T) {
	const begin = `{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","annotations":{"a":"`
	bomb := flood.Bomb(begin, "x")
	for how, answer := range map[string]func(w http.ResponseWriter){
		"endless": func(w http.ResponseWriter) { flood.Write(w, begin, "x") },
		"a bomb":  func(w http.ResponseWriter) { flood.Drop(w, http.StatusOK, bomb) },
		"many parts": func(w http.ResponseWriter) {
			flood.Write(w, `{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1","x":[1`, "\n,1")
		},
		"space": func(w http.ResponseWriter) { flood.Write(w, "", "\n") },
		"protobuf": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			flood.Write(w, "\xff\xff\xff\xff", "x")
		},
	} {
		t.Run(how, func(t *testing.T) {
			err := flooded(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if !r.URL.Query().Has("watch") {
					respond(w, nodeText)
					return
				}
				answer(w)
			}, func(ctx context.Context, c controlplane.Client) error {
				seen := make(chan *corev1.Node, 1)
				return c.(controlplane.NodeWatcher).WatchNode(ctx, "n", seen)
			})
			if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "MiB: check whether the server's address") {
				t.Errorf("WatchNode() = %v, want it unavailable, with what to do", err)
			}
		})
	}
}

// A watch may last for weeks: the limit is for each event, not for all together.
func TestAWatchOfManyEventsGoesOn(t *testing.T) {
	const events = 10
	filling := strings.Repeat("x", 1<<20)
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			respond(w, nodeText)
			return
		}
		for i := range events {
			respond(w, fmt.Sprintf(`{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"%d","annotations":{"a":"%s"}}}}`, i+2, filling))
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience) // 10 MiB, with the race detector, on a busy machine
	defer cancel()
	seen, ended := make(chan *corev1.Node), make(chan error, 1)
	go func() { ended <- client.WatchNode(ctx, "n", seen) }()
	for {
		select {
		case n := <-seen:
			if n.ResourceVersion == strconv.Itoa(events+1) {
				cancel()
				<-ended
				return
			}
		case err := <-ended:
			t.Fatalf("WatchNode() = %v, want it to continue through %d events of 1 MiB", err, events)
		}
	}
}

// A fleet may have any size: 5,000 Nodes, some of which are too large for pages of 100.
func TestALargeFleetIsRead(t *testing.T) {
	const nodes, large = 5000, 8
	size := func(i int) int {
		switch {
		case i < large:
			return 1_200_000 // about the limit of etcd
		case i < 20*large:
			return 10_000
		}
		return 500
	}
	filling := strings.Repeat("x", size(0))
	page := func(w http.ResponseWriter, r *http.Request, kind, version string, filled bool) {
		limit, err := strconv.Atoi(r.FormValue("limit"))
		if err != nil || limit < 1 || limit > 100 {
			t.Errorf("%s is requested with limit %q, want 1 to 100", r.URL.Path, r.FormValue("limit"))
			return
		}
		from, _ := strconv.Atoi(r.FormValue("continue"))
		to, next := min(from+limit, nodes), ""
		if to < nodes {
			next = strconv.Itoa(to)
		}
		_, _ = fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"7","continue":%q},"items":[`, kind, version, next)
		for i := from; i < to; i++ {
			comma := ","
			if i == from {
				comma = ""
			}
			text := ""
			if filled {
				text = filling[:size(i)]
			}
			if _, err := fmt.Fprintf(w, `%s{"metadata":{"name":"n%05d","annotations":{"a":"%s"}}}`, comma, i, text); err != nil {
				return // the client stopped reading
			}
		}
		_, _ = fmt.Fprint(w, "]}")
	}
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/leases") {
			page(w, r, "Lease", "coordination.k8s.io/v1", false)
			return
		}
		page(w, r, "Node", "v1", true)
	}))
	seen := 0
	err := client.Fleet(t.Context(), func(node *corev1.Node, lease *coordinationv1.Lease) error {
		if want := fmt.Sprintf("n%05d", seen); node.Name != want || lease == nil || lease.Name != want || len(node.Annotations["a"]) != size(seen) {
			t.Errorf("Fleet() returns %s with %d bytes and %v, want %s and its Lease", node.Name, len(node.Annotations["a"]), lease, want)
		}
		seen++
		return nil
	})
	if err != nil || seen != nodes {
		t.Errorf("Fleet() = %v after %d Nodes, want all of %d", err, seen, nodes)
	}
}

// field returns a protobuf field with bytes.
func field(number protowire.Number, content string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), content))
}

// envelope returns an object of the API in protobuf.
func envelope(kind, content string) string {
	return "k8s\x00" + field(1, field(1, "v1")+field(2, kind)) + field(2, content)
}

// oddTag is a field with a number that only the API's decoders accept.
var oddTag = string(binary.AppendUvarint(nil, (1<<32+100)<<3)) + "\x00"

// An answer of a few MiB may have values that take many times as much when they are decoded.
func TestAnswersOfManySmallValuesAreNotDecoded(t *testing.T) {
	const node, list = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"1"`, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`
	many := strings.Repeat("{},", 1_300_000) + "{}"
	get := func(ctx context.Context, c controlplane.Client) error { _, err := c.Node(ctx, "n"); return err }
	fleet := func(ctx context.Context, c controlplane.Client) error {
		return c.(controlplane.FleetLister).Fleet(ctx, func(*corev1.Node, *coordinationv1.Lease) error { return nil })
	}
	watch := func(ctx context.Context, c controlplane.Client) error {
		return c.(controlplane.NodeWatcher).WatchNode(ctx, "n", make(chan *corev1.Node, 1))
	}
	const json, protobuf = "application/json", "application/vnd.kubernetes.protobuf"
	for name, tt := range map[string]struct {
		call       func(context.Context, controlplane.Client) error
		kind, text string
	}{
		"conditions":             {get, json, node + `},"status":{"conditions":[` + many + `]}}`},
		"managed fields":         {get, json, node + `,"managedFields":[` + many + `]}}`},
		"a list":                 {fleet, json, list + many + `]}`},
		"a list of null":         {fleet, json, list + strings.Repeat("null,", 800_000) + `null]}`},
		"an event":               {watch, json, `{"type":"MODIFIED","object":` + node + `},"status":{"conditions":[` + many + `]}}}`},
		"conditions in protobuf": {get, protobuf, envelope("Node", field(1, field(1, "n"))+field(3, strings.Repeat(field(4, ""), 1_900_000)))},
		"those cut off":          {get, protobuf, envelope("Node", field(1, field(1, "n"))+field(3, strings.Repeat(field(4, ""), 1_900_000)+"\x07"))},
		"those behind a tag":     {get, protobuf, envelope("Node", oddTag+field(1, field(1, "n"))+field(3, strings.Repeat(field(4, ""), 1_900_000)))},
		"a list in protobuf":     {fleet, protobuf, envelope("NodeList", field(1, field(2, "7"))+strings.Repeat(field(2, ""), 1_900_000))},
	} {
		t.Run(name, func(t *testing.T) {
			err := flooded(t, func(w http.ResponseWriter, r *http.Request) {
				if name == "an event" && !r.URL.Query().Has("watch") {
					respond(w, nodeText)
					return
				}
				w.Header().Set("Content-Type", tt.kind)
				_, _ = w.Write([]byte(tt.text)) // fails if the client has disconnected
			}, tt.call)
			if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "check whether the server's address") {
				t.Errorf("the call = %v, want it unavailable, with what to do", err)
			}
		})
	}
}

func TestAListOfKindsWithManySmallValuesIsNotDecoded(t *testing.T) {
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		respond(w, `{"kind":"APIGroupDiscoveryList","items":[`+strings.Repeat("{},", 1_300_000)+`{}]}`)
	}))
	var err error
	allocated := flood.Allocated(func() { _, _, err = fleet.Kinds(t.Context()) })
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "check whether the server's address") || allocated > mostAllocated {
		t.Errorf("Kinds() = %v with %d MiB, want it unavailable, with what to do", err, allocated>>20)
	}
}

// A quantity with a large exponent takes hours to decode. The one here does not. Other texts may look like one.
func TestAServersHugeQuantityIsNotDecoded(t *testing.T) {
	const json, protobuf = "application/json", "application/vnd.kubernetes.protobuf"
	const huge = "1234567890123456789e999"
	amount := func(quantity string) string { return field(1, "cpu") + field(2, quantity) }
	node := func(more string) string {
		return envelope("Node", field(1, field(1, "n")+field(5, "u")+field(6, "1")+field(12, field(1, "a")+field(2, huge)))+more)
	}
	text := func(capacity string) string {
		return strings.TrimSuffix(strings.Replace(nodeText, `"uid"`, `"annotations":{"a":"`+huge+`"},"uid"`, 1), "}") + `,"status":{"capacity":{"cpu":` + capacity + `}}}`
	}
	for name, c := range map[string]struct {
		kind, answer string
		readable     bool
	}{
		"text":                        {json, text(`"` + huge + `"`), false},
		"number":                      {json, text(huge), false},
		"honest text":                 {json, text(`"1"`), true},
		"protobuf":                    {protobuf, node(field(3, field(1, amount(field(1, huge))))), false},
		"long":                        {protobuf, node(field(3, field(1, amount(field(1, strings.Repeat("1", 65)))))), false},
		"second of two":               {protobuf, node(field(3, field(1, amount(field(1, "1")+field(1, huge))))), false},
		"behind a tag":                {protobuf, node(field(3, field(1, amount(oddTag+field(1, huge))))), false},
		"behind a group":              {protobuf, node(field(3, field(1, amount("\x7b\x8c\x01"+field(1, huge))))), false},
		"with a length of more bytes": {protobuf, node(field(3, field(1, amount("\x0a"+string([]byte{byte(len(huge)) | 0x80, 0})+huge)))), false},
		"honest protobuf":             {protobuf, node(field(3, field(1, amount(field(1, "1"))))), true},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				_, _ = w.Write([]byte(c.answer)) // fails if the client has disconnected
			}))
			n, err := client.Node(t.Context(), "n")
			if !c.readable && (!errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "64 digits in a quantity")) {
				t.Errorf("Node() = %v, want it unavailable because of its quantity", err)
			}
			if c.readable && (err != nil || n.Annotations["a"] != huge || n.Status.Capacity.Cpu().Value() != 1) {
				t.Errorf("Node() = %v, %v, want a Node with 1 cpu", n, err)
			}
		})
	}
}

// A list contains the quantities of all Nodes: one Node must not hide the others.
func TestAHugeQuantityHidesNoOtherNode(t *testing.T) {
	const first, second = `{"metadata":{"name":"a"},"status":{"capacity":{"cpu":"1e999"}}}`, `{"metadata":{"name":"b"}}`
	list := func(kind, version, next, items string) string {
		return fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`, kind, version, next, items)
	}
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/leases"):
			respond(w, list("Lease", "coordination.k8s.io/v1", "", ""))
		case strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList"):
			respond(w, list("PartialObjectMetadata", "meta.k8s.io/v1", "b", `{"metadata":{"name":"a"}}`))
		case r.FormValue("continue") == "b":
			respond(w, list("Node", "v1", "", second))
		case r.FormValue("limit") == "1":
			respond(w, list("Node", "v1", "b", first))
		default:
			respond(w, list("Node", "v1", "", first+","+second))
		}
	}))
	var names []string
	err := client.Fleet(t.Context(), func(n *corev1.Node, _ *coordinationv1.Lease) error {
		names = append(names, n.Name)
		return nil
	})
	if !errors.Is(err, controlplane.ErrIncomplete) || !strings.Contains(err.Error(), `"a" has more than 64 digits in a quantity`) || !slices.Equal(names, []string{"b"}) {
		t.Errorf("Fleet() = %v after %q, want b, and a as left out", err, names)
	}
}

// A server's message is shown in a log, on a terminal and in Events.
func TestWhatAServerSaysIsCutAndHarmless(t *testing.T) {
	long := "\\u001b[2J" + strings.Repeat("very long ", 100_000)
	for code, reason := range map[int]string{http.StatusConflict: "Conflict", http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden", http.StatusServiceUnavailable: "ServiceUnavailable"} {
		client := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"%s"}`, code, reason, long)
		}))
		if _, err := client.Node(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "very long") || len(err.Error()) > 4<<10 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("Node() refused with %d = %.100q of %d bytes, want what was said, cut and without an escape sequence", code, err, len(err.Error()))
		}
	}
	client := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		respond(w, strings.Replace(nodeText, `"name":"n"`, `"name":"`+long+`"`, 1))
	}))
	if _, err := client.Node(t.Context(), "n"); err == nil || len(err.Error()) > 4<<10 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("Node() answered with another = %.100q of %d bytes, want its name cut", err, len(err.Error()))
	}
}

// TestAnAnswerInYAMLIsNotDecoded has a server that answers in a type that was not requested, and that client-go knows.
// No bound of this package knows it.
func TestAnAnswerInYAMLIsNotDecoded(t *testing.T) {
	client := dial(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write([]byte("kind: Node\napiVersion: v1\nmetadata: {name: n, uid: u, resourceVersion: '1'}\n")) // fails if the client has disconnected
	}))
	if n, err := client.Node(t.Context(), "n"); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Node() = %v, %v, want it unavailable", n, err)
	}
}
