package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// Type is the control plane's name in the configuration.
const Type = "kubernetes"

const (
	// callTimeout bounds a call whose caller sets no deadline.
	callTimeout = 10 * time.Second
	// leaseTimeout does so for those on the Lease: a fifth of the 40 s that it is
	// good for by default.
	leaseTimeout = 8 * time.Second
	// attempts are how often an object is read and written again while others keep
	// changing it, as many as kubelet makes.
	attempts = 5
)

// Options has the server and the credentials.
type Options struct {
	// Kubeconfig is a path. The file is read when it is first needed, so it can be created after the
	// agent has started. It and its files are read again after a request without an answer, with
	// rejected credentials, or that the server could not serve.
	Kubeconfig string
	// Account is used in place of a kubeconfig; nil for none.
	Account *Account
	// Certificate gives the client certificate for each new connection, in place
	// of all credentials in the kubeconfig; nil to use those.
	Certificate func() (*tls.Certificate, error)
	// PluginAsRoot has an exec plugin of the kubeconfig run as root where hostler does. It runs as
	// nobody otherwise.
	PluginAsRoot bool
	// Refused is called after a request whose credentials the server does not
	// accept, from any goroutine; it must not block. It may be nil.
	Refused func()
	// Namespace is where a Fleet keeps the Leases by which it elects leaders; DefaultNamespace if
	// empty.
	Namespace string
	// Version is hostler's own, for the user agent.
	Version string
	Log     *slog.Logger

	answered func(date time.Time) // receives the server's time of each answer; may be nil
}

// Client is the node's side of a Kubernetes API server. It implements
// controlplane.Client and its roles Cordoner, Annotator, NodeWatcher, ConditionWriter
// and FleetLister.
type Client struct {
	o            Options
	core, leases *apiGroup
	others       *apiGroup // for the Leases of others, which must not hold up its own

	mu       sync.Mutex   // guards what follows
	known    *known       // nil where the next status has to read the Node first
	replaced *corev1.Node // another machine's Node that is deleted, or about to be, and not replaced yet
}

var (
	_ controlplane.Client    = (*Client)(nil)
	_ controlplane.Cordoner  = (*Client)(nil)
	_ controlplane.Annotator = (*Client)(nil)

	_ controlplane.NodeWatcher     = (*Client)(nil)
	_ controlplane.ConditionWriter = (*Client)(nil)
	_ controlplane.FleetLister     = (*Client)(nil)
)

// New returns a client that is not connected yet.
func New(o Options) (*Client, error) {
	if o.path() == "" {
		return nil, errors.New("no kubeconfig given")
	}
	o.Log = o.Log.With("component", "controlplane")
	return &Client{
		o:      o,
		core:   newGroup(o, corev1.SchemeGroupVersion),
		leases: newGroup(o, coordinationv1.SchemeGroupVersion),
		others: newGroup(o, coordinationv1.SchemeGroupVersion),
	}, nil
}

// Type returns "kubernetes".
func (c *Client) Type() string { return Type }

// Endpoint returns the server's URL, or the path of the credentials as long as
// they could not be read.
func (c *Client) Endpoint() string {
	return cmp.Or(c.core.server(), c.leases.server(), c.o.path())
}

// Close closes all connections.
func (c *Client) Close() error {
	c.Reconnect()
	return nil
}

// Reconnect has the next calls make new connections, so that they present the
// certificate that there is then. Calls in progress end on theirs.
func (c *Client) Reconnect() {
	c.core.Reconnect()
	c.leases.Reconnect()
	c.others.Reconnect()
}

// ask makes one request to an API group. It always decodes the answer: an answer that cannot be
// decoded is not from an API server, whatever its status.
func (c *Client) ask(ctx context.Context, operation string, to *apiGroup, request func(rest.Interface) *rest.Request, into runtime.Object) error {
	result, err := to.do(ctx, request)
	switch {
	case err == nil && into != nil:
		err = result.Into(into)
	case err == nil:
		_, err = result.Get()
	}
	return c.fault(ctx, operation, err)
}

// target is which object a request is for; of any UID where that is empty.
type target struct {
	name string
	uid  types.UID
}

// answered returns an error if an answer has another object than the requested one: a proxy may
// return what it has cached, and client-go accepts an object of another kind as an empty one.
func (c *Client) answered(operation string, a target, o metav1.Object) error {
	if o.GetName() == a.name && (a.uid == "" || o.GetUID() == a.uid) {
		return nil
	}
	return fmt.Errorf("%s: %w: %s returned another object, name %.253q, UID %.253q: check for a proxy in between", operation, controlplane.ErrUnavailable, c.Endpoint(), o.GetName(), o.GetUID())
}

// userAgent is by what name the server's logs know this client.
func userAgent(version string) string {
	return fmt.Sprintf("hostler/%s (%s/%s)", version, goruntime.GOOS, goruntime.GOARCH)
}

// warnings are notes that the server adds to answers, of things deprecated.
type warnings struct{ log *slog.Logger }

// HandleWarningHeader implements rest.WarningHandler.
func (w warnings) HandleWarningHeader(code int, _, text string) {
	if text != "" {
		w.log.Debug("warning of the API server", "code", code, "text", text)
	}
}
