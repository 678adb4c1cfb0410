package kubernetes

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
)

// What is read of a server's answers, decompressed. A server is not trusted with this host's memory.
const (
	// maxAnswerBytes is the largest object or error. etcd accepts requests of 1.5 MiB by default, and
	// an API server bodies of 3 MiB; JSON is longer than the stored form.
	maxAnswerBytes = 4 << 20
	// maxPageBytes bounds a page of pageOfNodes Nodes: some 80 kB for each, where 50 images and 30
	// labels make 20 kB. A page of larger ones is read in smaller pages.
	maxPageBytes = 8 << 20
	// maxEventBytes bounds an event of a watch, which holds an object.
	maxEventBytes = maxAnswerBytes
)

// boundedAnswers cuts answers off that are too large. It does not have the read of them fail, which
// client-go would log as an error of its own.
type boundedAnswers struct{ carrier http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.carrier.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	query, most := request.URL.Query(), int64(maxAnswerBytes)
	switch {
	case query.Has("watch") && response.StatusCode == http.StatusOK: // as boundedEvents does
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

// lastBody is the context key of the answer's body.
type lastBody struct{}

// answerBody reads an answer up to its limit and one byte more.
type answerBody struct {
	io.LimitedReader
	io.Closer
	most int64
}

// tooLarge reports whether there is more; of no answer, false.
func (b *answerBody) tooLarge() bool { return b != nil && b.N == 0 }

// WrappedRoundTripper lets client-go find the connections below.
func (b boundedAnswers) WrappedRoundTripper() http.RoundTripper { return b.carrier }

// sizeError says that an answer has more of something than is taken.
type sizeError struct{ server, most string }

// Error says what to do about it.
func (e *sizeError) Error() string {
	return fmt.Sprintf("%s returned more than %s: %s", e.server, e.most, sizeHint)
}

// boundedCodecs limits the size of decoded answers, and of each event of a watch.
type boundedCodecs struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c boundedCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
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

// boundedEvents parts a stream into events. client-go's own bound counts an event in JSON only once it
// has read all of it.
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

// eventBody limits the bytes until left is set again.
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
