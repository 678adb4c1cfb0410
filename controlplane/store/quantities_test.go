package store_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// TestAHugeQuantityIsNotRead has JSON of values that would take minutes to decode, and of values that look alike.
func TestAHugeQuantityIsNotRead(t *testing.T) {
	const capacity = `{"metadata":{"name":"n"},"status":{"capacity":{"cpu":%}}}`
	for name, c := range map[string]struct {
		kind     store.Kind
		text     string // % is the value
		value    string
		readable bool
	}{
		"exponent":                    {store.Nodes, capacity, `"1234567890123456789e99999999"`, false},
		"negative exponent":           {store.Nodes, capacity, `"1234567890123456789E-99999999"`, false},
		"zeros before it":             {store.Nodes, capacity, `"1234567890123456789e+00099999999"`, false},
		"exponent that wraps":         {store.Nodes, capacity, `"1234567890123456789e4394967295"`, false},
		"sign":                        {store.Nodes, capacity, `"-1e99999999"`, false},
		"space":                       {store.Nodes, capacity, "\" \u00a0\u20281e99999999 \"", false},
		"no digit":                    {store.Nodes, capacity, `".e99999999"`, false},
		"a number":                    {store.Nodes, capacity, `1234567890123456789e99999999`, false},
		"a number with a space":       {store.Nodes, capacity, " \t\n1234567890123456789e99999999", false},
		"long mantissa":               {store.Nodes, capacity, `"` + strings.Repeat("1", 1<<20) + `"`, false},
		"long fraction":               {store.Nodes, capacity, `"1.` + strings.Repeat("1", 1<<20) + `Ki"`, false},
		"second of two":               {store.Nodes, capacity, `"1","cpu":"1e99999999"`, false},
		"other case":                  {store.Nodes, `{"metadata":{"name":"n"},"STATUS":{"CAPACITY":{"cpu":%}}}`, `"1e99999999"`, true}, // it is no status
		"escaped name":                {store.Nodes, `{"metadata":{"name":"n"},"sta\u0074us":{"capacity":{"cpu":%}}}`, `"1e99999999"`, false},
		"requests of a pod":           {store.Pods(true), `{"metadata":{"name":"n","namespace":"a"},"spec":{"nodeName":"h","containers":[{"resources":{"requests":{"cpu":%}}}]}}`, `"1e99999999"`, false},
		"long, but not too long":      {store.Nodes, capacity, `"` + strings.Repeat("1", 64) + `"`, true},
		"exponent of two digits":      {store.Nodes, capacity, `"1e18"`, true},
		"Gi":                          {store.Nodes, capacity, `"1024Gi"`, true},
		"null":                        {store.Nodes, capacity, `null`, true},
		"short hash in a label":       {store.Nodes, `{"metadata":{"name":"n","labels":{"commit":%}}}`, `"123456e78901"`, true},
		"digest of digits":            {store.Nodes, `{"metadata":{"name":"n","labels":{"commit":%}}}`, `"` + strings.Repeat("1", 65) + `"`, true},
		"escape":                      {store.Nodes, `{"metadata":{"name":"n","annotations":{"a":%}}}`, `"\u0e105"`, true},
		"hash in JSON in a text":      {store.Nodes, `{"metadata":{"name":"n","annotations":{"a":%}}}`, `"{\"id\":\"123456e78901\",\"b\":\"7e1000\\\"}"`, true},
		"quantity with an escape":     {store.Nodes, capacity, `"1e\u0039999999"`, false},
		"two hashes as names":         {store.Nodes, `{"metadata":{"name":"n","labels":{"5e100ab":"","7e200cd":%}}}`, `""`, true},
		"hash as the name of a label": {store.Nodes, `{"metadata":{"name":"n","labels":{%:""}}}`, `"123456e78901"`, true},
		"name of a pod":               {store.Pods(true), `{"metadata":{"name":%,"namespace":"a"},"spec":{"nodeName":"h"}}`, `"123456e78901"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			stored := "n"
			if c.kind.Name == store.Pods(true).Name {
				stored = "h/a/n"
				if name == "name of a pod" {
					stored = "h/a/123456e78901"
				}
			}
			left := controlplane.MostValues
			_, err := c.kind.Decode(stored, []byte(strings.ReplaceAll(c.text, "%", c.value)), "1", &left)
			if c.readable && err != nil || !c.readable && !errors.Is(err, store.ErrUnreadable) {
				t.Errorf("Decode() = %v", err)
			}
		})
	}
}

// FuzzQuantity decodes texts as quantities of a Node: what is read takes no time to be written again.
func FuzzQuantity(f *testing.F) {
	for _, s := range []string{"1", "1.5Gi", "1e99", "-1E+99", "1e-99", strings.Repeat("9", 64), " 1 "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{string(quoted), `"` + text + `"`, text} {
			left := controlplane.MostValues
			o, err := store.Nodes.Decode("n", []byte(`{"metadata":{"name":"n"},"status":{"capacity":{"cpu":`+value+`}}}`), "1", &left)
			if err != nil {
				continue
			}
			for _, q := range o.(*corev1.Node).Status.Capacity {
				if most := resource.MustParse(strings.Repeat("9", 64) + "e99"); q.Cmp(most) > 0 {
					t.Errorf("%q is read", value)
				}
			}
		}
	})
}
