package kubernetes

import (
	"bytes"
	"encoding/binary"
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
	mostItems   = 1000
	mostObjects = "1000 objects in a list"
	// mostNested is the depth to which nested messages are read. Quantities in lists of pods have a depth
	// of 11.
	mostNested = 20
)

// boundedDecoder refuses an answer that would take many times its own size in memory, or minutes to
// decode. It replaces times that JSON cannot have: protobuf can have them.
type boundedDecoder struct{ runtime.Serializer }

// Decode implements runtime.Decoder. The object of an event that exceeds a limit is an oversized, so that the watch goes on.
func (d boundedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if _, event := into.(*metav1.WatchEvent); event { // its object is decoded afterwards
		return d.Serializer.Decode(data, defaults, into)
	}
	cause := d.exceeds(data, defaults, into)
	list, identified := into.(*identities)
	switch {
	case cause != nil && cause.most == mostObjects:
		return nil, nil, cause
	case identified:
		return list, nil, list.decode(data)
	case cause != nil:
		own, _, err := identify(data)
		cause.version = own.ResourceVersion
		if event := into == nil && defaults == nil; !event || err != nil || own.Name == "" {
			return nil, nil, cause
		}
		return &oversized{own.object(), cause}, nil, nil
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

// exceeds returns the limit that an answer exceeds; nil if it exceeds none.
func (d boundedDecoder) exceeds(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) *sizeError {
	var values, items int
	var masked []byte // without what may be huge quantities
	if inJSON(data) {
		values, items = controlplane.CountValues(data)
		masked = controlplane.MaskHuge(data)
	} else {
		huge := false
		values, _, items = countFields(data, 0, func([]byte) { huge = true })
		if huge {
			masked = bytes.Clone(data)
			countFields(masked, 0, func(field []byte) { field[0] = '?' })
		}
	}
	switch {
	case items > mostItems:
		return &sizeError{server: "the server", most: mostObjects}
	case values > controlplane.MostValues:
		return &sizeError{server: "the server", most: fmt.Sprintf("%d values", controlplane.MostValues)}
	case masked != nil && !d.decodes(masked, defaults, into):
		return &sizeError{server: "the server", most: controlplane.MostDigits}
	}
	return nil
}

// decodes reports whether data can be decoded. It leaves into as it is.
func (d boundedDecoder) decodes(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) bool {
	if into != nil {
		into = into.DeepCopyObject()
	}
	_, _, err := d.Serializer.Decode(data, defaults, into)
	return err == nil
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
// is followed by a length of 32 or more. It calls huge with each field that begins with a huge number.
func countFields(message []byte, depth int, huge func(field []byte)) (values, own, items int) {
	message = bytes.TrimPrefix(message, envelope)
	for len(message) > 0 {
		content, rest, ok := cutField(message)
		if !ok {
			break
		}
		message = rest
		if content == nil {
			continue
		}
		own++
		if controlplane.IsHuge(content) {
			huge(content)
		} else if depth < mostNested {
			below, direct, _ := countFields(content, depth+1, huge)
			values, items = values+below, max(items, direct)
		}
	}
	return values + own, own, items
}

// cutField returns the content of a message's first field, nil if it has no bytes, and what follows.
// As the decoders of the API do, it accepts varints that are too long or too large. A group is a
// field without bytes, followed by those in it.
func cutField(message []byte) (content, rest []byte, ok bool) {
	tag, rest, ok := cutVarint(message)
	size := uint64(0)
	switch protowire.Type(tag & 7) {
	case protowire.VarintType:
		_, rest, ok = cutVarint(rest)
	case protowire.Fixed64Type:
		size = 8
	case protowire.Fixed32Type:
		size = 4
	case protowire.BytesType:
		size, rest, ok = cutVarint(rest)
	case protowire.StartGroupType, protowire.EndGroupType:
	default:
		return nil, nil, false
	}
	if !ok || size > uint64(len(rest)) {
		return nil, nil, false
	}
	if protowire.Type(tag&7) == protowire.BytesType {
		content = rest[:size:size]
	}
	return content, rest[size:], true
}

// cutVarint returns the number that data begins with, and what follows.
func cutVarint(data []byte) (number uint64, rest []byte, ok bool) {
	for i := range min(len(data), binary.MaxVarintLen64) {
		number |= uint64(data[i]&0x7f) << (7 * i)
		if data[i] < 0x80 {
			return number, data[i+1:], true
		}
	}
	return 0, nil, false
}
