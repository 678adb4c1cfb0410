package controlplane

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/json"

	"hostler.io/hostler/internal/sanitize"
)

// MostValues is the maximum number of values in one decoded text, such as a page of a list. An
// empty object has two bytes in JSON but, as a condition, 112 bytes in memory. A Node has about
// 1,000 values.
const MostValues = 1 << 18

// MostHostObjects and MostHostBytes bound what a server takes of one host in a folder of etcd that the host may write:
// twice what an agent writes.
const (
	MostHostObjects = 1000
	MostHostBytes   = 2 << 20
)

// MostHostValues is the maximum number of values in an object that a host writes on etcd. A Node may list many images,
// so MostNodeValues is more. An empty container has two bytes in JSON, and 408 bytes in memory.
const (
	MostHostValues = 1 << 12
	MostNodeValues = 1 << 16
)

// MostEntries is the maximum number of owners, finalizers, taints, tolerations and conditions of an object on etcd, each.
const MostEntries = 200

// mostUID bounds a UID in bytes. Runtimes and people choose them, too.
const mostUID = 317

// ValidUID reports whether servers take an object with that UID: it can be shown, and repeated in a request.
func ValidUID(uid string) bool {
	return len(uid) <= mostUID && !strings.ContainsFunc(uid, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Decode decodes JSON text as an API server does: the case of names counts, and no field of the type may be there twice.
// So readers with the same type agree about it. Of another name that is there twice, an edit keeps the last. The text of
// an error is bounded: errors of decoders quote what they have found, and may be many times as long.
func Decode(text []byte, into any) error {
	strict, err := json.UnmarshalStrict(text, into, json.DisallowDuplicateFields)
	if parse, is := errors.AsType[*time.ParseError](err); is { // its text has the value twice, with four bytes for each byte
		return fmt.Errorf("time %.40q is not in the format of RFC 3339", parse.Value)
	}
	if err := errors.Join(append(strict, err)...); err != nil {
		return errors.New(sanitize.Text(err.Error(), sanitize.MaxText))
	}
	return nil
}

// CountValues counts the commas in JSON text. values counts all commas; items counts those between
// elements of arrays that are directly in the outermost object, as in a list.
func CountValues(text []byte) (values, items int) {
	depth, list := 0, false
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{', c == '[':
			if depth++; depth == 2 {
				list = c == '['
			}
		case c == '}', c == ']':
			depth--
		case c == ',':
			values++
			if depth == 2 && list {
				items++
			}
		}
	}
	return values, items
}
