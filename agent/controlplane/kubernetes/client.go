package kubernetes

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	goruntime "runtime"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/agent/controlplane"
)

// Type is the control plane's name in the configuration.
const Type = "kubernetes"

const (
	// callTimeout bounds a call whose caller sets no deadline.
	callTimeout = 10 * time.Second
	// leaseTimeout does so for those on the Lease: a fifth of the 40 s that it is
	// good for by default.
	leaseTimeout = 8 * time.Second
	// attempts are how often an object is read and written anew while others keep
	// changing it, as many as kubelet makes.
	attempts = 5
)

// Options say which server to talk to, and as whom.
type Options struct {
	// Kubeconfig is a file's path. It is read when it is first needed, so that it
	// may come later than the agent, and again after a failure if it has changed.
	Kubeconfig string
	// Certificate gives the client certificate for each new connection, in place
	// of all credentials in the kubeconfig; nil to use those.
	Certificate func() (*tls.Certificate, error)
	// CloudProviderExternal leaves the addresses of a Node that is there as they
	// are found: a cloud controller manager writes them.
	CloudProviderExternal bool
	// Version is hostler's own, for the user agent.
	Version string
	// Now is the wall clock that judges Leases; time.Now if nil.
	Now func() time.Time
	Log *slog.Logger
}

// Client is the node's side of a Kubernetes API server. It implements
// controlplane.Client and Cordoner.
type Client struct {
	o Options

	mu    sync.Mutex // guards all below
	lines *lines     // nil before the kubeconfig could be read
	known *known     // nil where the next status has to read the Node first
}

// lines are what leads to the server, by one reading of the kubeconfig.
type lines struct {
	server string
	files  []string          // that the kubeconfig names; some may be ""
	sum    [sha256.Size]byte // of it and them
	core   *line
	leases *line
}

var (
	_ controlplane.Client   = (*Client)(nil)
	_ controlplane.Cordoner = (*Client)(nil)
)

// New returns a client that has not connected yet.
func New(o Options) (*Client, error) {
	if o.Kubeconfig == "" {
		return nil, errors.New("no kubeconfig is given: name one in controlPlane.kubernetes.kubeconfig")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = o.Log.With("component", "controlplane")
	return &Client{o: o}, nil
}

// Type returns "kubernetes".
func (c *Client) Type() string { return Type }

// Endpoint returns the server's URL, or the path of the kubeconfig as long as
// that could not be read.
func (c *Client) Endpoint() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines == nil {
		return c.o.Kubeconfig
	}
	return c.lines.server
}

// Close closes all connections.
func (c *Client) Close() error {
	c.Reconnect()
	return nil
}

// Reconnect closes all connections, so that the next calls present the
// certificate that there is now. Calls under way fail.
func (c *Client) Reconnect() {
	c.mu.Lock()
	lines := c.lines
	c.mu.Unlock()
	if lines != nil {
		lines.hangUp()
	}
}

// ask runs one request over one of the lines, and decodes the answer.
func (c *Client) ask(ctx context.Context, operation string, over func(*lines) *line, request func(*line) *rest.Request, into runtime.Object) error {
	lines, err := c.connect()
	if err != nil {
		return fmt.Errorf("%s: %w: %w", operation, controlplane.ErrUnavailable, err)
	}
	line := over(lines)
	result := line.do(ctx, request(line))
	if err = result.Error(); err == nil && into != nil {
		err = result.Into(into)
	}
	if err != nil && (!answered(err) || apierrors.IsUnauthorized(err)) {
		c.reload(lines)
	}
	return c.fault(ctx, operation, err)
}

func core(l *lines) *line   { return l.core }
func leases(l *lines) *line { return l.leases }

// connect returns the lines, which are made when they are first asked for.
func (c *Client) connect() (*lines, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines != nil {
		return c.lines, nil
	}
	var err error
	c.lines, err = newLines(c.o)
	return c.lines, err
}

// reload replaces lines on which something went wrong, if the kubeconfig or a
// file that it names has changed since they were made, and makes sense.
func (c *Client) reload(failed *lines) {
	if text, _ := os.ReadFile(c.o.Kubeconfig); sum(text, failed.files) == failed.sum {
		return
	}
	next, err := newLines(c.o)
	if err != nil {
		c.o.Log.Debug("changed credentials cannot be used, going on with the former", "error", err)
		return
	}
	c.mu.Lock()
	current := c.lines == failed
	if current {
		c.lines = next
	}
	c.mu.Unlock()
	if current {
		c.o.Log.Info("credentials have changed and are taken up", "kubeconfig", c.o.Kubeconfig, "server", next.server)
		failed.hangUp()
	}
}

func newLines(o Options) (*lines, error) {
	text, err := os.ReadFile(o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w: %s", err, hintForFile(err))
	}
	config, err := parse(o.Kubeconfig, text)
	if err != nil {
		return nil, err
	}
	l := &lines{server: config.Host, files: []string{config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile}}
	l.sum = sum(text, l.files)
	if o.Certificate != nil {
		config = rest.AnonymousClientConfig(config)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, certificatesv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register API types: %w", err)
		}
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	if l.core, err = newLine(config, o, corev1.SchemeGroupVersion, codecs); err == nil {
		l.leases, err = newLine(config, o, coordinationv1.SchemeGroupVersion, codecs)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w: %s", o.Kubeconfig, err, hintForFile(err))
	}
	return l, nil
}

// sum tells whether the kubeconfig or one of the files has changed. A file that
// cannot be read counts as empty: it is as good as gone.
func sum(kubeconfig []byte, files []string) [sha256.Size]byte {
	hash := sha256.New()
	_, _ = hash.Write(kubeconfig)
	for _, file := range files {
		text, _ := os.ReadFile(file)
		_, _ = fmt.Fprintf(hash, "\n%d\n", len(text))
		_, _ = hash.Write(text)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

func (l *lines) hangUp() {
	l.core.hangUp()
	l.leases.hangUp()
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
		w.log.Debug("the API server warns", "code", code, "text", text)
	}
}
