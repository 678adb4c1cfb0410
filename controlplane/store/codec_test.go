package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

func TestAnEditKeepsFieldsThatAreNotKnownHere(t *testing.T) {
	const value = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","annotations":{"a":"1","b":"2"},"future":[1]},
		"spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}],"future":{"x":12345678901234567890}},
		"status":{"future":"y","conditions":[{"type":"Ready","status":"True","future":1}]},"future":null}`
	for name, c := range map[string]struct {
		edit func(*corev1.Node)
		want string // the expected changes to the fields of value
	}{
		"a new field": {
			func(n *corev1.Node) { n.Spec.ProviderID = "p" },
			`{"spec":{"providerID":"p","unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule"}],"future":{"x":12345678901234567890}}}`,
		},
		"a field that is removed": {
			func(n *corev1.Node) { n.Spec.Unschedulable = false },
			`{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}],"future":{"x":12345678901234567890}}}`,
		},
		"a list": {
			func(n *corev1.Node) { n.Spec.Taints = nil },
			`{"spec":{"unschedulable":true,"future":{"x":12345678901234567890}}}`,
		},
		"a value of a map": {
			func(n *corev1.Node) { n.Annotations["b"] = "3"; delete(n.Annotations, "a") },
			`{"metadata":{"name":"n","uid":"u","annotations":{"b":"3"},"future":[1]}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			left := 1000
			stored, err := store.Nodes.Decode("n", []byte(value), "7", &left)
			if err != nil {
				t.Fatal(err)
			}
			edited, err := store.Nodes.Edit(stored, []byte(value), func(o store.Object) error {
				c.edit(o.(*corev1.Node))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var got, want, changes map[string]any
			for text, into := range map[string]*map[string]any{string(edited): &got, value: &want, c.want: &changes} {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			for name, change := range changes {
				want[name] = change
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("Edit() = %s, want %v", edited, want)
			}
		})
	}
}

func TestAnEditThatChangesNothingStoresNothing(t *testing.T) {
	left := 1000
	const value = `{"metadata":{"name":"n"},"future":1}`
	stored, err := store.Nodes.Decode("n", []byte(value), "7", &left)
	if err != nil {
		t.Fatal(err)
	}
	if edited, err := store.Nodes.Edit(stored, []byte(value), func(store.Object) error { return nil }); err != nil || edited != nil {
		t.Errorf("Edit() = %s, %v, want nothing", edited, err)
	}
	refusal := errors.New("refused")
	if _, err := store.Nodes.Edit(stored, []byte(value), func(store.Object) error { return refusal }); err != refusal {
		t.Errorf("Edit() = %v, want %v", err, refusal)
	}
}

// TestAllReadersOfATextAgree has names that only some decoders take for fields, and names that are there twice. A text
// that is read differently when it is edited would be edited for ever.
func TestAllReadersOfATextAgree(t *testing.T) {
	for name, c := range map[string]struct {
		value    string
		readable bool
	}{
		"another case":          {`{"metadata":{"name":"n"},"SPEC":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`, true},
		"a letter that folds":   {`{"metadata":{"name":"n"},"\u017fpec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}`, true},
		"one below":             {`{"metadata":{"name":"n"},"spec":{"taint\u017f":[{"key":"k","effect":"NoSchedule"}]}}`, true},
		"twice":                 {`{"metadata":{"name":"n"},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]},"spec":{}}`, false},
		"twice, once as escape": {`{"metadata":{"name":"n"},"sp\u0065c":{},"spec":{}}`, false},
		"twice below":           {`{"metadata":{"name":"n"},"spec":{"taints":[],"taints":[]}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			left := 1000
			o, err := store.Nodes.Decode("n", []byte(c.value), "1", &left)
			if !c.readable {
				if !errors.Is(err, store.ErrUnreadable) {
					t.Errorf("Decode() = %v, %v", o, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}
			edited, err := store.Nodes.Edit(o, []byte(c.value), func(o store.Object) error {
				o.(*corev1.Node).Spec.Taints = want
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if o, err = store.Nodes.Decode("n", edited, "2", &left); err != nil || !reflect.DeepEqual(o.(*corev1.Node).Spec.Taints, want) {
				t.Errorf("after an edit, Decode() of %s = %v, %v", edited, o, err)
			}
		})
	}
}

// TestAnUnreadableObjectHasAShortError has objects of which a decoder quotes all that it has found. Servers keep the errors
// of all objects.
func TestAnUnreadableObjectHasAShortError(t *testing.T) {
	long := strings.Repeat("é", 1<<18)
	for name, text := range map[string]string{
		"a time":       `{"metadata":{"name":"n","creationTimestamp":"` + long + `"}}`,
		"a number":     `{"metadata":{"name":` + strings.Repeat("1", 1<<19) + `}}`,
		"another name": `{"metadata":{"name":"` + long + `"}}`,
		"a label":      `{"metadata":{"name":"n","labels":{"` + long + `":{}}}}`,
	} {
		left := controlplane.MostValues
		_, err := store.Nodes.Decode("n", []byte(text), "1", &left)
		if !errors.Is(err, store.ErrUnreadable) || len(err.Error()) > 5000 {
			t.Errorf("%s: Decode() = %.200v, of %d bytes, want a short error", name, err, len(fmt.Sprint(err)))
		}
	}
}

// TestAPodHasANameOfThreeParts has a host that stores a pod below its name as that of a Node that cannot exist.
func TestAPodHasANameOfThreeParts(t *testing.T) {
	for name, readable := range map[string]bool{"n/shop/web": true, "n/x/shop/web": false, "n/shop": false} {
		parts := strings.Split(name, "/")
		text := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop"},"spec":{"nodeName":%q}}`, parts[len(parts)-1], strings.Join(parts[:max(1, len(parts)-2)], "/"))
		left := controlplane.MostValues
		if _, err := store.Pods(true).Decode(name, []byte(text), "1", &left); readable != (err == nil) {
			t.Errorf("Decode(%q) = %v, want it readable: %t", name, err, readable)
		}
	}
}

func TestATermHasABound(t *testing.T) {
	for seconds, want := range map[int64]time.Duration{1: time.Second, 60: time.Minute, 61: time.Minute, 0: time.Minute, -1: time.Minute, math.MaxInt64: time.Minute} {
		if got := store.TermOf(seconds); got != want {
			t.Errorf("TermOf(%d) = %v, want %v", seconds, got, want)
		}
	}
}
