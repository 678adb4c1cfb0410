package configfile

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Changed lists the keys whose values differ, in the order of the file. A map or
// a list counts as one key.
func Changed[T any](a, b T) []string {
	var keys []string
	differences(reflect.ValueOf(a), reflect.ValueOf(b), "", &keys)
	return keys
}

func differences(a, b reflect.Value, path string, keys *[]string) {
	if a.Kind() == reflect.Struct && !isCustom(a.Type()) {
		for i, name := range fieldNames(a.Type()) {
			differences(a.Field(i), b.Field(i), join(path, name), keys)
		}
		return
	}
	// An empty list is the same as none.
	if !equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
		*keys = append(*keys, path)
	}
}

// Live reports whether a reload applies a key; all others need a restart.
func Live[T any](key string) bool {
	t := reflect.TypeFor[T]()
	for name := range strings.SplitSeq(key, ".") {
		f, found := fieldOf(t, name)
		if !found || isLive(f) {
			return found
		}
		t = f.Type
		if t.Kind() != reflect.Struct {
			return false
		}
	}
	return false
}

// isLive reports whether a reload applies a field and everything inside it.
func isLive(f reflect.StructField) bool { return f.Tag.Get("reload") == "live" }
