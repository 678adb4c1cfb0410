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
	// maxLabels bounds the keys and values of one map of strings, such as the labels of a pod. There
	// is no limit for all maps: the labels of one object would use up what others need.
	maxLabels = 16 << 10
)

// read has the keys of containers, pods and images that hostler reads. They are dropped last, so
// that no other key of an image replaces one that was set on the container.
var read = map[string]bool{
	"hostler.io/critical": true, "hostler.io/priority": true, "hostler.io/keep": true, "hostler.io/grace-period": true,
	"io.kubernetes.pod.name": true, "io.kubernetes.pod.namespace": true, "io.kubernetes.pod.uid": true, "io.kubernetes.pod.terminationGracePeriod": true,
	"io.kubernetes.container.restartCount": true, "io.kubernetes.docker.type": true,
	"io.kubernetes.cri.sandbox-id": true, "io.kubernetes.cri.sandbox-namespace": true, "io.kubernetes.cri.sandbox-name": true, "io.kubernetes.cri.sandbox-uid": true,
	"io.kubernetes.cri.container-name": true, "io.kubernetes.cri.image-name": true, "io.kubernetes.cri.container-type": true, "io.kubernetes.cri-o.ContainerType": true,
	"com.docker.compose.project": true, "com.docker.compose.service": true, "com.docker.compose.depends_on": true, "com.docker.compose.oneoff": true,
	"com.docker.compose.project.working_dir": true, "com.docker.compose.project.config_files": true,
	"io.podman.compose.project": true, "PODMAN_SYSTEMD_UNIT": true, "io.container.manager": true,
	"image": true, "imageID": true, // attributes of Docker's events
	"org.opencontainers.image.ref.name": true, "org.opencontainers.image.stopSignal": true,
}

// rank orders keys by importance. Within a rank, short values are kept first.
func rank(key string) int {
	switch {
	case read[key]:
		return 0
	case strings.HasPrefix(key, "hostler.io/"): // such as those of a Node
		return 1
	}
	return 2
}

// DroppedKey is the key that says which entries of a map were dropped because it was too large.
const DroppedKey = "sanitize.hostler.io/left-out"

// droppedBytes is reserved for DroppedKey and its value, so that a clean map stays as it is.
const droppedBytes = 100

// Clean returns a copy of a value from another program in which every text is printable, on one
// line, and bounded. Text that is cut says so. Unchanged values are shared with v, which is not
// modified.
func Clean[T any](v T) T {
	clean, changed := value(reflect.ValueOf(&v).Elem(), MaxText)
	if !changed {
		return v
	}
	return clean.Interface().(T)
}

// value returns a clean copy of v and true, or v itself and false if it is clean. limit bounds each
// text.
func value(v reflect.Value, limit int) (reflect.Value, bool) {
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
		return fields(v)
	case reflect.Slice:
		return slice(v, limit)
	case reflect.Map:
		if labels, ok := v.Interface().(map[string]string); ok {
			clean, changed := Labels(labels, maxLabels)
			return reflect.ValueOf(clean), changed
		}
		return entries(v, limit)
	case reflect.Interface:
		if v.IsNil() {
			return v, false
		}
		return value(v.Elem(), limit)
	case reflect.Pointer:
		if v.IsNil() {
			return v, false
		}
		elem, changed := value(v.Elem(), limit)
		if !changed {
			return v, false
		}
		clean := reflect.New(v.Type().Elem())
		clean.Elem().Set(elem)
		return clean, true
	}
	return v, false
}

func fields(v reflect.Value) (reflect.Value, bool) {
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
		field, other := value(v.Field(i), limit)
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

func slice(v reflect.Value, limit int) (reflect.Value, bool) {
	clean, changed := v, false
	for i := range v.Len() {
		elem, other := value(v.Index(i), limit)
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
func entries(v reflect.Value, limit int) (reflect.Value, bool) {
	clean, changed := reflect.MakeMapWithSize(v.Type(), v.Len()), false
	for _, key := range v.MapKeys() {
		k, otherKey := value(key, MaxKey)
		elem, other := value(v.MapIndex(key), limit)
		clean.SetMapIndex(k, elem)
		changed = changed || other || otherKey
	}
	if !changed {
		return v, false
	}
	return clean, true
}

// Labels returns a clean copy of a map such as labels or annotations and true, or the map itself and
// false if it is clean. limit bounds all keys and values, in bytes.
func Labels(labels map[string]string, limit int) (map[string]string, bool) {
	size, changed := 0, false
	for key, value := range labels {
		k, v := Text(key, MaxKey), Text(value, MaxText)
		changed = changed || k != key || v != value
		size += len(k) + len(v)
	}
	if size <= limit && !changed {
		return labels, false
	}
	clean := make(map[string]string)
	keys := slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(len(labels[a]), len(labels[b])), strings.Compare(a, b))
	})
	left, leftBytes := 0, 0
	if size > limit {
		limit -= droppedBytes
	}
	for _, key := range keys {
		k, v := Text(key, MaxKey), Text(labels[key], MaxText)
		if len(k)+len(v) > limit {
			left, leftBytes = left+1, leftBytes+len(key)+len(labels[key])
			continue
		}
		clean[k] = v
		limit -= len(k) + len(v)
	}
	if left > 0 {
		clean[DroppedKey] = fmt.Sprintf("%d entries, %d bytes", left, leftBytes)
	}
	return clean, true
}
