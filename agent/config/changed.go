package config

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Changed lists the keys whose values differ, in the order of the file. A map or
// a list counts as one key.
func Changed(a, b Config) []string {
	var keys []string
	differences(reflect.ValueOf(a), reflect.ValueOf(b), "", &keys)
	return keys
}

func differences(a, b reflect.Value, path string, keys *[]string) {
	_, whole := a.Interface().(Runtimes)
	if a.Kind() == reflect.Struct && !whole {
		for i, name := range fieldNames(a.Type()) {
			differences(a.Field(i), b.Field(i), join(path, name), keys)
		}
		return
	}
	// An empty list and none are the same to whoever wrote the file.
	if !equality.Semantic.DeepEqual(a.Interface(), b.Interface()) {
		*keys = append(*keys, path)
	}
}
