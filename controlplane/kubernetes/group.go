package kubernetes

import (
	"cmp"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"hostler.io/hostler/controlplane/dial"
	"hostler.io/hostler/internal/account"
	"hostler.io/hostler/internal/redirect"
	"hostler.io/hostler/internal/sanitize"
)

const (
	protobuf = "application/vnd.kubernetes.protobuf"

	dialTimeout = 5 * time.Second
	keepAlive   = 15 * time.Second

	// maxWaiting limits how many requests to one API group wait for an exec plugin.
	maxWaiting = 16
)

// apiGroup is an API group of the server. It has connections of its own.
type apiGroup struct {
	*dial.Shared[*conn]
	o           Options
	group       schema.GroupVersion
	pluginSlots chan struct{} // for requests that an exec plugin may block
	// relayed says that an error may come from another server, such as a webhook or an aggregated API.
	// Such an error says nothing about the connection.
	relayed bool

	mu     sync.Mutex
	config *rest.Config // the last valid one; nil before the first; guarded by mu
}

func newGroup(o Options, group schema.GroupVersion) *apiGroup {
	g := &apiGroup{o: o, group: group, pluginSlots: make(chan struct{}, maxWaiting)}
	g.Shared = dial.New(g.dial, func(cause error) error { return &fileError{o.source(), cause} })
	return g
}

// conn is a client with its own connections and credentials. It is replaced as a whole: after only
// its connections were closed, the next request could still use one before HTTP/2 notices.
type conn struct {
	dial.Uses
	*rest.RESTClient
	dialer *connrotation.Dialer
}

// Ready implements dial.Conn. It returns true, because only a request shows whether a connection
// works.
func (*conn) Ready() bool { return true }

// Close closes all connections.
func (c *conn) Close() {
	c.dialer.CloseAll()
	utilnet.CloseIdleConnectionsFor(c.Client.Transport)
}

// do makes one request. After an error of mustRedial, the next request uses a new connection, with
// credentials that are read again.
func (g *apiGroup) do(ctx context.Context, request func(rest.Interface) *rest.Request) (rest.Result, error) {
	c, err := g.acquire(ctx)
	if err != nil {
		return rest.Result{}, err
	}
	defer g.Release(c)
	// The caller handles Retry-After, because it has other work to do while it waits.
	var body atomic.Pointer[answerBody]
	result := request(c).MaxRetries(0).Do(context.WithValue(ctx, lastBody{}, &body))
	err = result.Error()
	if b := body.Load(); err == nil && b.tooLarge() { // an error does not need its whole body
		return rest.Result{}, &sizeError{server: g.server(), most: fmt.Sprintf("%d MiB", b.most>>20)}
	}
	if err != nil && g.mustRedial(err) {
		g.Drop(c)
	}
	return result, err
}

// mustRedial reports whether the next request of the group needs a new connection.
func (g *apiGroup) mustRedial(err error) bool {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	if g.relayed && answered {
		return status.ErrStatus.Code == http.StatusUnauthorized
	}
	return mustRedial(err)
}

// acquire is Acquire, but returns an error while there is no certificate.
func (g *apiGroup) acquire(ctx context.Context) (*conn, error) {
	if g.o.Certificate != nil {
		if _, err := g.o.Certificate(); err != nil {
			return nil, err
		}
	}
	return g.Acquire(ctx)
}

// mustRedial reports whether the next request needs a new connection: there was no answer, or the
// credentials were rejected, or this server cannot serve. A load balancer keeps a connection on its
// server, even if another server is healthy.
func mustRedial(err error) bool {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	return !answered || status.ErrStatus.Code == http.StatusUnauthorized || status.ErrStatus.Code >= http.StatusInternalServerError
}

// read returns the configuration of the credentials, or the previous one if the present one is
// invalid.
func (g *apiGroup) read() (*rest.Config, error) {
	config, err := g.o.load()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err == nil:
		g.config = config
	case g.config == nil:
		return nil, err
	default: // the file may just be replaced, or was only needed at the start
		g.o.Log.Debug("invalid credentials, using the previous ones", "error", err)
	}
	return g.config, nil
}

// server returns the server's URL for messages; empty while it is unknown.
func (g *apiGroup) server() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.config == nil {
		return ""
	}
	return sanitize.Userinfo(g.config.Host)
}

// dial returns a client, which connects with its first request. It reads the credentials and the
// files that they name.
func (g *apiGroup) dial() (*conn, error) {
	config, err := g.read()
	if err != nil {
		return nil, err
	}
	c, err := g.client(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", g.o.source(), conceal(err), dial.FileHint(err))
	}
	return c, nil
}

func (g *apiGroup) client(config *rest.Config) (*conn, error) {
	codecs, err := codecs()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	if g.o.Certificate != nil {
		config = rest.AnonymousClientConfig(config)
	}
	config.UserAgent = userAgent(g.o.Version)
	config.QPS = -1 // no limit here: it could delay a Lease
	config.WarningHandler = warnings{g.o.Log}
	config.GroupVersion, config.APIPath = &g.group, "/apis"
	if g.group.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = codecs
	config.ContentType = protobuf
	config.AcceptContentTypes = protobuf + ",application/json"
	c := &conn{dialer: connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)}
	// client-go shares the connections of equal configurations. A dialer of its own makes this
	// configuration different.
	config.Dial = c.dialer.DialContext
	transport, err := roundTripper(config, g.o, g.pluginSlots)
	if err != nil {
		return nil, err
	}
	c.RESTClient, err = rest.RESTClientForConfigAndClient(config, &http.Client{Transport: transport, CheckRedirect: redirect.Refuse})
	return c, err
}

// newScheme returns a scheme of the three API groups that hostler uses.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	return scheme, nil
}

// codecs encode and decode objects.
func codecs() (runtime.NegotiatedSerializer, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	return boundedCodecs{serializer.NewCodecFactory(scheme).WithoutConversion()}, nil
}

// roundTripper returns the transport to the server, with the credentials.
func roundTripper(config *rest.Config, o Options, pluginSlots chan struct{}) (http.RoundTripper, error) {
	plugin := &boundedPlugin{pluginSlots: pluginSlots, user: cmp.Or(o.PluginUser, account.Unprivileged)}
	if config.ExecProvider != nil {
		plugin.plugin, plugin.path = config.ExecProvider.Command, pluginPath(config.ExecProvider)
		config = rest.CopyConfig(config)
		var err error
		if config.ExecProvider, err = launched(config.ExecProvider, plugin.user, cmp.Or(o.pluginTime, pluginTime)); err != nil {
			return nil, err
		}
		config.Wrap(func(carrier http.RoundTripper) http.RoundTripper { return watchedTransport{carrier} })
	}
	t, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	if o.Certificate != nil {
		t.TLS.GetCertHolder = &transport.GetCertHolder{GetCert: o.Certificate}
	}
	carrier, err := transport.New(t)
	if err == nil {
		carrier = boundedAnswers{carrier}
	}
	if err == nil && o.answered != nil {
		carrier = dateReporter{carrier, o.answered}
	}
	if err != nil || config.ExecProvider == nil {
		return carrier, err
	}
	plugin.carrier = carrier
	return plugin, nil
}
