package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
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

// line leads to one API group of the server.
type line struct {
	o     Options
	group schema.GroupVersion
	turns chan struct{} // of requests that an exec plugin may hold up

	mu      sync.Mutex   // guards all below
	config  *rest.Config // as it was read last and made sense; nil before
	way     *way         // nil where the next request has to find one
	opening *opening     // of a way; nil if none is under way
}

// opening is the making of a way. It reads files, and a filesystem that does not
// answer holds it for as long as that lasts: requests need not wait for that long.
type opening struct {
	done  chan struct{} // closed when it has ended
	err   error         // why there is no way; of who has seen done closed
	stale bool          // it began before the way was to be a new one; guarded by the line's mu
}

func newLine(o Options, group schema.GroupVersion) *line {
	return &line{o: o, group: group, turns: make(chan struct{}, maxUnderWay)}
}

// way is one way to the server, with connections and credentials of its own.
type way struct {
	*rest.RESTClient
	dialer   *connrotation.Dialer
	underWay atomic.Int32
}

// do runs one request over the line. One that ends as spent tells is the last on its
// way: the next one finds another, with a connection that is new and credentials as
// they are then.
func (l *line) do(ctx context.Context, request func(rest.Interface) *rest.Request) (rest.Result, error) {
	w, err := l.find(ctx)
	if err != nil {
		return rest.Result{}, err
	}
	// Retry-After is the caller's to heed, who has other things to do meanwhile.
	result := request(w).MaxRetries(0).Do(ctx)
	err = result.Error()
	if err != nil && spent(err) {
		l.leave(w)
	}
	l.done(w)
	return result, err
}

// spent tells whether a way is of no more use after that error: it brought no answer,
// or none but that the credentials are not known, or that this server cannot serve. A
// load balancer keeps a connection where it is, also while another server is well.
func spent(err error) bool {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	return !answered || status.ErrStatus.Code == http.StatusUnauthorized || status.ErrStatus.Code >= http.StatusInternalServerError
}

// done notes that a request has ended. What others wait for on a way that was left
// may yet come: the last one closes it.
func (l *line) done(w *way) {
	if w.underWay.Add(-1) == 0 && l.left(w) {
		w.close()
	}
}

// find returns the present way, or one made of what the kubeconfig says now, for
// a request that is under way from then on. Nobody is called as long as there is no
// certificate to show.
func (l *line) find(ctx context.Context) (*way, error) {
	if l.o.Certificate != nil {
		if _, err := l.o.Certificate(); err != nil {
			return nil, err
		}
	}
	for {
		w, o := l.present()
		if w != nil {
			return w, nil
		}
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
			return nil, &fileError{l.o.Kubeconfig, context.Cause(ctx)}
		}
	}
}

// present is the way that there is, for one more request, or else the making of one.
func (l *line) present() (*way, *opening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.way != nil {
		l.way.underWay.Add(1)
		return l.way, nil
	}
	if l.opening == nil {
		l.opening = &opening{done: make(chan struct{})}
		go l.open(l.opening)
	}
	return nil, l.opening
}

// open makes a way.
func (l *line) open(o *opening) {
	for {
		config, err := l.read()
		var w *way
		if err == nil { // the files that it names are read here, and may hang, too
			if w, err = newWay(config, l.o, l.group, l.turns); err != nil {
				w, err = nil, fmt.Errorf("kubeconfig %s: %w: %s", l.o.Kubeconfig, err, hintForFile(err))
			}
		}
		if l.opened(o, w, err) {
			close(o.done)
			return
		}
	}
}

// read is what the kubeconfig says, or where that makes no sense any more what it said
// before.
func (l *line) read() (*rest.Config, error) {
	config, err := Load(l.o.Kubeconfig)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.config = config
	case l.config == nil:
		return nil, err
	default: // it is being replaced, or was for the beginning only
		l.o.Log.Debug("kubeconfig cannot be used any more, going on by what it said", "error", err)
	}
	return l.config, nil
}

// opened takes up the way that was made, or why none could be. It returns false if that
// has to be done again.
func (l *line) opened(o *opening, w *way, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.stale {
		o.stale = false
		return false
	}
	l.opening, l.way, o.err = nil, w, err
	return true
}

// leave has the next request find another way. To close the connections of this
// one alone would not do: a request that comes at once could be put on one before
// HTTP/2 has noticed.
func (l *line) leave(w *way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.way == w {
		l.way = nil
	}
}

// left tells whether the way is not the present one any more.
func (l *line) left(w *way) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.way != w
}

// renew leaves the present way. Requests under way on it end as they would.
func (l *line) renew() {
	l.mu.Lock()
	w := l.way
	l.way = nil
	if l.opening != nil {
		l.opening.stale = true
	}
	l.mu.Unlock()
	if w != nil && w.underWay.Load() == 0 {
		w.close()
	}
}

// close closes all connections.
func (w *way) close() {
	w.dialer.CloseAll()
	utilnet.CloseIdleConnectionsFor(w.Client.Transport)
}

// server is the URL of the server; "" as long as it is not known.
func (l *line) server() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.config == nil {
		return ""
	}
	return l.config.Host
}

// newWay returns a way that has no connection yet.
func newWay(config *rest.Config, o Options, group schema.GroupVersion, turns chan struct{}) (*way, error) {
	codecs, err := codecs()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	if o.Certificate != nil {
		config = rest.AnonymousClientConfig(config)
	}
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
	w := &way{dialer: connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)}
	// client-go shares the connections of equal configurations; a dialer of its
	// own sets this one apart.
	config.Dial = w.dialer.DialContext
	transport, err := roundTripper(config, o, turns)
	if err != nil {
		return nil, err
	}
	w.RESTClient, err = rest.RESTClientForConfigAndClient(config, &http.Client{Transport: transport})
	return w, err
}

// codecs translate the objects of the three API groups that hostler speaks of.
func codecs() (runtime.NegotiatedSerializer, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	return serializer.NewCodecFactory(scheme).WithoutConversion(), nil
}

// roundTripper is what carries requests to the server with its credentials.
func roundTripper(config *rest.Config, o Options, turns chan struct{}) (http.RoundTripper, error) {
	if config.ExecProvider != nil {
		config.Wrap(func(carrier http.RoundTripper) http.RoundTripper { return departure{carrier} })
	}
	t, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	if o.Certificate != nil {
		t.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: o.Certificate}
	}
	carrier, err := transport.New(t)
	if err == nil && o.heard != nil {
		carrier = listening{carrier, o.heard}
	}
	if err != nil || config.ExecProvider == nil {
		return carrier, err
	}
	return &punctual{carrier: carrier, turns: turns, plugin: config.ExecProvider.Command}, nil
}
