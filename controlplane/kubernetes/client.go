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
	// callTimeout limits a call whose caller sets no deadline.
	callTimeout = 10 * time.Second
	// leaseTimeout limits calls on the Lease: a fifth of its default duration of 40 s.
	leaseTimeout = 8 * time.Second
	// attempts is how often an object is read and written again while other clients change it. kubelet
	// makes as many attempts.
	attempts = 5
)

// Options has the server and the credentials.
type Options struct {
	// Kubeconfig is a path. The file is read when it is first needed, so it can be created after the
	// agent has started. It and the files that it names are read again if the server did not answer,
	// rejected the credentials, or could not serve a request.
	Kubeconfig string
	// Account is used instead of a kubeconfig; nil for none.
	Account *Account
	// Certificate returns the client certificate for each new connection, instead of all credentials
	// in the kubeconfig; nil to use those.
	Certificate func() (*tls.Certificate, error)
	// PluginUser runs an exec plugin of the kubeconfig if hostler runs as root; account.Unprivileged
	// if empty.
	PluginUser string
	// Refused is called after the server has rejected the credentials, from any goroutine; it must not
	// block. It may be nil.
	Refused func()
	// Namespace has the Leases by which a Fleet elects leaders; DefaultNamespace if empty.
	Namespace string
	// Version is hostler's own, for the user agent.
	Version string
	Log     *slog.Logger

	answered   func(date time.Time) // receives the server's time of each answer; may be nil
	pluginTime time.Duration        // pluginTime if zero
}

// Client is a Kubernetes API server as a node uses it. It implements controlplane.Client and its
// roles Cordoner, Annotator, NodeWatcher, ConditionWriter and FleetLister.
type Client struct {
	o            Options
	core, leases *apiGroup
	others       *apiGroup // for the Leases of other hosts, which must not delay this host's Lease

	mu       sync.Mutex   // guards the fields below
	known    *known       // nil if the next status update has to read the Node first
	replaced *corev1.Node // another machine's Node that is being deleted, or was deleted and not replaced yet
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

// Endpoint returns the server's URL, or the path of the credentials until they have been read.
func (c *Client) Endpoint() string {
	return cmp.Or(c.core.server(), c.leases.server(), c.o.path())
}

// Close closes all connections.
func (c *Client) Close() error {
	c.Reconnect()
	return nil
}

// Reconnect makes the next calls use new connections, which present the present certificate. Calls
// in progress continue on their connections.
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

// target is the object of a request. An empty UID matches any.
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

// userAgent returns the name of this client in the server's logs.
func userAgent(version string) string {
	return fmt.Sprintf("hostler/%s (%s/%s)", version, goruntime.GOOS, goruntime.GOARCH)
}

// warnings logs the warnings in a server's answers, such as about deprecated versions.
type warnings struct{ log *slog.Logger }

// HandleWarningHeader implements rest.WarningHandler.
func (w warnings) HandleWarningHeader(code int, _, text string) {
	if text != "" {
		w.log.Debug("warning of the API server", "code", code, "text", text)
	}
}
