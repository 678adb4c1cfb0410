package kubernetes

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"

	dialTimeout = 5 * time.Second
	keepAlive   = 15 * time.Second

	// maxUnderWay bounds the requests on one line that wait for an exec plugin.
	maxUnderWay = 16
)

// line leads to one API group of the server over connections of its own.
type line struct {
	*rest.RESTClient
	dialer   *connrotation.Dialer
	underWay atomic.Int32
}

// newLine returns a line that has no connection yet.
func newLine(config *rest.Config, o Options, group schema.GroupVersion, codecs runtime.NegotiatedSerializer) (*line, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent(o.Version)
	config.QPS = -1 // a limit here could hold up a Lease
	config.WarningHandler = warnings{o.Log}
	config.GroupVersion, config.APIPath = &group, "/apis"
	if group.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = codecs
	config.ContentType = protobuf
	config.AcceptContentTypes = protobuf + ",application/json"
	l := &line{dialer: connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)}
	// client-go shares the connections of equal configurations; a dialer of its
	// own sets this one apart.
	config.Dial = l.dialer.DialContext
	way, err := roundTripper(config, o)
	if err != nil {
		return nil, err
	}
	l.RESTClient, err = rest.RESTClientForConfigAndClient(config, &http.Client{Transport: way})
	return l, err
}

// roundTripper is the way to the server with its credentials.
func roundTripper(config *rest.Config, o Options) (http.RoundTripper, error) {
	t, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	if o.Certificate != nil {
		t.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: o.Certificate}
	}
	way, err := transport.New(t)
	if err != nil || config.ExecProvider == nil {
		return way, err
	}
	return &punctual{way: way, turns: make(chan struct{}, maxUnderWay)}, nil
}

// do runs one request over the line, and hangs up if it gets no answer.
func (l *line) do(ctx context.Context, request *rest.Request) rest.Result {
	l.underWay.Add(1)
	// Retry-After is the caller's to heed, who has other things to do meanwhile.
	result := request.MaxRetries(0).Do(ctx)
	others := l.underWay.Add(-1)
	switch err := result.Error(); {
	case err == nil || answered(err):
	case ctx.Err() == context.Canceled && others > 0:
		// It may have been as good as answered: no reason to break off what others
		// wait for.
	default:
		l.hangUp()
	}
	return result
}

// hangUp closes all connections, so that the next request has a new one.
func (l *line) hangUp() {
	l.dialer.CloseAll()
	utilnet.CloseIdleConnectionsFor(l.Client.Transport)
}

// punctual ends a request with its context. client-go runs exec plugins without
// one, so that a plugin that hangs would hold up its caller for good.
type punctual struct {
	way   http.RoundTripper
	turns chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (p *punctual) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	select {
	case p.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type answer struct {
		response *http.Response
		err      error
	}
	answers := make(chan answer)
	go func() {
		defer func() { <-p.turns }()
		response, err := p.way.RoundTrip(request)
		select {
		case answers <- answer{response, err}:
		case <-ctx.Done():
			if err == nil {
				_ = response.Body.Close() // nobody reads it any more
			}
		}
	}()
	select {
	case a := <-answers:
		return a.response, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// WrappedRoundTripper lets client-go find the connections below.
func (p *punctual) WrappedRoundTripper() http.RoundTripper { return p.way }
