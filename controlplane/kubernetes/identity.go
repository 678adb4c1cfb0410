package kubernetes

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
)

// identities are the objects of a list. Only what identifies each of them is decoded: its name, namespace, UID and
// version. So they can be read whatever else the objects contain.
type identities struct {
	metav1.PartialObjectMetadataList
}

func (l *identities) decode(data []byte) error {
	own, items, err := identify(data)
	l.ResourceVersion, l.Continue = own.ResourceVersion, own.Continue
	for _, i := range items {
		l.Items = append(l.Items, i.object())
	}
	return err
}

// oversized is the object of an event that exceeds a limit. Only what identifies it is decoded.
type oversized struct {
	metav1.PartialObjectMetadata
	cause *sizeError
}

// identity is the part of an object's metadata, or of a list's, that is decoded.
type identity struct {
	Name            string    `json:"name"`
	Namespace       string    `json:"namespace"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	Continue        string    `json:"continue"`
}

func (i *identity) object() (o metav1.PartialObjectMetadata) {
	o.Name, o.Namespace, o.UID, o.ResourceVersion = i.Name, i.Namespace, i.UID, i.ResourceVersion
	return o
}

// identify returns the identity of an object or a list, and those of the objects in it, in JSON or protobuf.
func identify(data []byte) (own identity, items []identity, err error) {
	if inJSON(data) {
		type object struct {
			Metadata identity `json:"metadata"`
		}
		var read struct {
			Metadata identity `json:"metadata"`
			Items    []object `json:"items"`
		}
		err := controlplane.Decode(data, &read)
		for _, o := range read.Items {
			items = append(items, o.Metadata)
		}
		return read.Metadata, items, err
	}
	whole := bytes.TrimPrefix(data, envelope)
	kind, object := fieldOf(fieldOf(whole, 1), 2), fieldOf(whole, 2)
	if !bytes.HasSuffix(kind, []byte("List")) {
		return identityOf(fieldOf(object, 1)), nil, nil
	}
	eachField(object, func(number protowire.Number, content []byte) {
		switch number {
		case 1:
			own.ResourceVersion, own.Continue = string(fieldOf(content, 2)), string(fieldOf(content, 3))
		case 2:
			items = append(items, identityOf(fieldOf(content, 1)))
		}
	})
	return own, items, nil
}

// identityOf decodes an ObjectMeta in protobuf.
func identityOf(metadata []byte) (i identity) {
	eachField(metadata, func(number protowire.Number, content []byte) {
		switch number {
		case 1:
			i.Name = string(content)
		case 3:
			i.Namespace = string(content)
		case 5:
			i.UID = types.UID(content)
		case 6:
			i.ResourceVersion = string(content)
		}
	})
	return i
}

// fieldOf returns the last field of a message that has a number; nil if there is none.
func fieldOf(message []byte, number protowire.Number) (last []byte) {
	eachField(message, func(n protowire.Number, content []byte) {
		if n == number {
			last = content
		}
	})
	return last
}

// eachField calls each for each field of a message in protobuf that consists of bytes.
func eachField(message []byte, each func(number protowire.Number, content []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			return
		}
		if content, _ := protowire.ConsumeBytes(message[n:]); kind == protowire.BytesType {
			each(number, content)
		}
		message = message[n+size:]
	}
}

// inJSON reports whether an answer is in JSON; otherwise it is in protobuf.
func inJSON(data []byte) bool {
	begin := bytes.TrimLeft(data, " \t\r\n")
	return len(begin) > 0 && begin[0] == '{'
}
