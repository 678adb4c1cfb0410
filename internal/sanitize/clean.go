package sanitize

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Limits for text from outside, in bytes.
const (
	// MaxName bounds a name: a field called Name or Namespace.
	MaxName = 256
	// MaxKey bounds the key of a map. Kubernetes allows 253 bytes for the prefix of a label, 63 for
	// its name, and the slash.
	MaxKey = 317
	// MaxText bounds any other text.
	MaxText = 4 << 10
	// maxLabels bounds the keys and values of one map of strings.
	maxLabels = 64 << 10
	// maxAllLabels bounds the labels of all maps in one Clean, such as those of all pods of a
	// runtime. Beyond it, maps keep only the keys that hostler uses.
	maxAllLabels = 16 << 20
)

// ownPrefix begins the keys that hostler uses. They are dropped last.
const ownPrefix = "hostler.io/"

// wellKnown are prefixes of keys with which runtimes and orchestrators identify a container.
var wellKnown = []string{"io.kubernetes.", "com.docker.compose.", "io.podman.", "PODMAN_SYSTEMD_UNIT"}

// rank orders keys by importance. Within a rank, short values are kept first.
func rank(key string) int {
	switch {
	case strings.HasPrefix(key, ownPrefix):
		return 0
	case slices.ContainsFunc(wellKnown, func(prefix string) bool { return strings.HasPrefix(key, prefix) }):
		return 1
	}
	return 2
}

// DroppedKey is the key that says which entries of a map were dropped because it was too large.
const DroppedKey = "sanitize.hostler.io/left-out"

// Clean returns a copy of a value from another program in which every text is printable, on one
// line, and bounded. Text that is cut says so. Unchanged values are shared with v, which is not
// modified.
func Clean[T any](v T) T {
	c := cleaner{left: maxAllLabels}
	clean, changed := c.value(reflect.ValueOf(&v).Elem(), MaxText)
	if !changed {
		return v
	}
	return clean.Interface().(T)
}

type cleaner struct{ left int } // bytes that are left for maps

// value returns a clean copy of v and true, or v itself and false if it is clean. limit bounds each
// text.
func (c *cleaner) value(v reflect.Value, limit int) (reflect.Value, bool) {
	switch v.Kind() {
	case reflect.String:
		text := Text(v.String(), limit)
		if text == v.String() {
			return v, false
		}
		clean := reflect.New(v.Type()).Elem()
		clean.SetString(text)
		return clean, true
	case reflect.Struct:
		return c.fields(v)
	case reflect.Slice:
		return c.slice(v, limit)
	case reflect.Map:
		if labels, ok := v.Interface().(map[string]string); ok {
			clean, changed := c.labels(labels)
			return reflect.ValueOf(clean), changed
		}
		return c.entries(v, limit)
	case reflect.Interface:
		if v.IsNil() {
			return v, false
		}
		return c.value(v.Elem(), limit)
	case reflect.Pointer:
		if v.IsNil() {
			return v, false
		}
		elem, changed := c.value(v.Elem(), limit)
		if !changed {
			return v, false
		}
		clean := reflect.New(v.Type().Elem())
		clean.Elem().Set(elem)
		return clean, true
	}
	return v, false
}

func (c *cleaner) fields(v reflect.Value) (reflect.Value, bool) {
	clean, changed := v, false
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		limit := MaxText
		if f.Name == "Name" || f.Name == "Namespace" {
			limit = MaxName
		}
		field, other := c.value(v.Field(i), limit)
		if !other {
			continue
		}
		if !changed {
			clean, changed = reflect.New(v.Type()).Elem(), true
			clean.Set(v)
		}
		clean.Field(i).Set(field)
	}
	return clean, changed
}

func (c *cleaner) slice(v reflect.Value, limit int) (reflect.Value, bool) {
	clean, changed := v, false
	for i := range v.Len() {
		elem, other := c.value(v.Index(i), limit)
		if !other {
			continue
		}
		if !changed {
			clean, changed = reflect.MakeSlice(v.Type(), v.Len(), v.Len()), true
			reflect.Copy(clean, v)
		}
		clean.Index(i).Set(elem)
	}
	return clean, changed
}

// entries cleans a map whose values are not strings.
func (c *cleaner) entries(v reflect.Value, limit int) (reflect.Value, bool) {
	clean, changed := reflect.MakeMapWithSize(v.Type(), v.Len()), false
	for _, key := range v.MapKeys() {
		k, otherKey := c.value(key, MaxKey)
		elem, other := c.value(v.MapIndex(key), limit)
		clean.SetMapIndex(k, elem)
		changed = changed || other || otherKey
	}
	if !changed {
		return v, false
	}
	return clean, true
}

// labels cleans a map such as labels or annotations.
func (c *cleaner) labels(labels map[string]string) (map[string]string, bool) {
	size, changed := 0, false
	for key, value := range labels {
		k, v := Text(key, MaxKey), Text(value, MaxText)
		changed = changed || k != key || v != value
		size += len(k) + len(v)
	}
	limit := min(maxLabels, c.left)
	c.left -= min(size, limit)
	if size <= limit && !changed {
		return labels, false
	}
	clean := make(map[string]string, len(labels))
	keys := slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(labels[a]), len(labels[b])), strings.Compare(a, b))
	})
	taken, left, leftBytes := 0, 0, 0
	for _, key := range keys {
		k, v := Text(key, MaxKey), Text(labels[key], MaxText)
		if taken+len(k)+len(v) > limit && (!strings.HasPrefix(key, ownPrefix) || taken > maxLabels) {
			left, leftBytes = left+1, leftBytes+len(key)+len(labels[key])
			continue
		}
		clean[k] = v
		taken += len(k) + len(v)
	}
	if left > 0 {
		clean[DroppedKey] = fmt.Sprintf("%d entries, %d bytes", left, leftBytes)
	}
	return clean, true
}
