package kubernetes

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hostler.io/hostler/controlplane"
)

const (
	// mostItems limits the objects in a list. Each takes 1 kB in memory, however small it is in an
	// answer. A server may return more than was requested.
	mostItems = 10 * pageOfNodes
	// mostNested is the depth to which nested messages are counted. Messages in lists of Nodes are not
	// nested deeper.
	mostNested = 10
)

// boundedDecoder refuses an answer that would take many times its own size in memory. It replaces
// times that JSON cannot have: protobuf can have them.
type boundedDecoder struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (d boundedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var values, items int
	if begin := bytes.TrimLeft(data, " \t\r\n"); len(begin) > 0 && begin[0] == '{' {
		values, items = controlplane.CountValues(data)
	} else {
		values, _, items = countFields(data, 0)
	}
	switch {
	case items > mostItems:
		return nil, nil, &sizeError{"the server", fmt.Sprintf("%d objects in a list", mostItems)}
	case values > controlplane.MostValues:
		return nil, nil, &sizeError{"the server", fmt.Sprintf("%d values", controlplane.MostValues)}
	}
	decoded, kind, err := d.Serializer.Decode(data, defaults, into)
	if err != nil {
		return decoded, kind, err
	}
	if meta.IsListType(decoded) {
		return decoded, kind, meta.EachListItem(decoded, func(item runtime.Object) error {
			boundTimes(item)
			return nil
		})
	}
	boundTimes(decoded)
	return decoded, kind, nil
}

func boundTimes(decoded runtime.Object) {
	if o, ok := decoded.(metav1.Object); ok {
		controlplane.BoundTimes(o)
	}
}

// envelope begins an object in protobuf.
var envelope = []byte("k8s\x00")

// countFields counts the fields of a message that may be messages themselves. values includes
// nested fields; own does not. items is the highest own of the direct fields: the number of objects
// in a list. Text that is mistaken for a message adds few fields: a letter that begins such a field
// is followed by a length of 32 or more.
func countFields(message []byte, depth int) (values, own, items int) {
	message = bytes.TrimPrefix(message, envelope)
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			break
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			break
		}
		if kind == protowire.BytesType {
			own++
			if content, _ := protowire.ConsumeBytes(message); depth < mostNested {
				below, direct, _ := countFields(content, depth+1)
				values, items = values+below, max(items, direct)
			}
		}
		message = message[n:]
	}
	return values + own, own, items
}
