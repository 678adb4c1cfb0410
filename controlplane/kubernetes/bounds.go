package kubernetes

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
)

// The limits of a server's answers, decompressed. A server must not be able to use up this host's
// memory.
const (
	// maxAnswerBytes limits an object or an error. etcd accepts requests of 1.5 MiB by default, and an
	// API server bodies of 3 MiB; JSON is longer than the stored form.
	maxAnswerBytes = 4 << 20
	// maxPageBytes limits a page of pageOfNodes Nodes: about 80 kB for each. A Node with 50 images and
	// 30 labels has 20 kB. If the Nodes are larger, smaller pages are read.
	maxPageBytes = 8 << 20
	// maxEventBytes limits an event of a watch, which contains one object.
	maxEventBytes = maxAnswerBytes
)

// boundedAnswers truncates answers that are too large. It does not return an error from the read,
// because client-go would log that.
type boundedAnswers struct{ carrier http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.carrier.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	query, most := request.URL.Query(), int64(maxAnswerBytes)
	switch {
	case query.Has("watch") && response.StatusCode == http.StatusOK: // boundedEvents limits a watch
		return response, nil
	case query.Has("limit") && query.Get("limit") != "1":
		most = maxPageBytes
	}
	body := &answerBody{LimitedReader: io.LimitedReader{R: response.Body, N: most + 1}, Closer: response.Body, most: most}
	response.Body = body
	if last, ok := request.Context().Value(lastBody{}).(*atomic.Pointer[answerBody]); ok {
		last.Store(body)
	}
	return response, nil
}

// lastBody is the context key of the last answer's body.
type lastBody struct{}

// answerBody reads an answer up to its limit plus one byte.
type answerBody struct {
	io.LimitedReader
	io.Closer
	most int64
}

// tooLarge reports whether the answer exceeds its limit; false without an answer.
func (b *answerBody) tooLarge() bool { return b != nil && b.N == 0 }

// WrappedRoundTripper gives client-go access to the transport below.
func (b boundedAnswers) WrappedRoundTripper() http.RoundTripper { return b.carrier }

// sizeError reports that an answer exceeds a limit.
type sizeError struct {
	server, most string
	version      string // resourceVersion of the object; empty if it is not known
}

// Error contains a hint.
func (e *sizeError) Error() string {
	return fmt.Sprintf("%s returned more than %s: %s", e.server, e.most, sizeHint)
}

// boundedCodecs limits the size of decoded answers, and of each event of a watch.
type boundedCodecs struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c boundedCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
	// The bounds know JSON and protobuf. A server may answer in another type than the requested one.
	types = slices.DeleteFunc(types, func(t runtime.SerializerInfo) bool {
		return t.MediaType != runtime.ContentTypeJSON && t.MediaType != runtime.ContentTypeProtobuf
	})
	for i := range types {
		types[i].Serializer = boundedDecoder{types[i].Serializer}
		if types[i].StreamSerializer != nil {
			stream := *types[i].StreamSerializer
			stream.Serializer, stream.Framer = boundedDecoder{stream.Serializer}, boundedEvents{stream.Framer}
			types[i].StreamSerializer = &stream
		}
	}
	return types
}

// boundedEvents splits a stream into events. client-go has a limit of its own, but checks an event
// in JSON only after it has read all of it.
type boundedEvents struct{ runtime.Framer }

// NewFrameReader implements runtime.Framer.
func (b boundedEvents) NewFrameReader(body io.ReadCloser) io.ReadCloser {
	from := &eventBody{ReadCloser: body, left: maxEventBytes}
	return &events{b.Framer.NewFrameReader(from), from}
}

// events is a stream that is read one event at a time, in one or more parts.
type events struct {
	io.ReadCloser
	from *eventBody
}

// Read implements io.Reader. It returns no error with the last part of an event.
func (e *events) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err == nil {
		e.from.left = maxEventBytes
	}
	return n, err
}

// eventBody limits the number of bytes that can be read until left is set again.
type eventBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *eventBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("it has more than %d MiB: %s", maxEventBytes>>20, sizeHint)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// sizeHint is the fix for an answer that is too large.
const sizeHint = "check whether the server's address is that of an API server, and how large its objects are"
