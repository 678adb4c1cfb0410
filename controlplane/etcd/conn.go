package etcd

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/dial"
	"hostler.io/hostler/controlplane/etcd/endpoint"
	"hostler.io/hostler/controlplane/objects"
)

const (
	// connectTimeout is the time for three endpoints together to serve requests. So an endpoint that
	// does not answer leaves time for the others, and a single busy one has more time.
	connectTimeout = 7500 * time.Millisecond
	// connectLeast is the least time of each endpoint, however many there are.
	connectLeast = connectTimeout / 3
	// pingAfter and pingTimeout close a connection that stays silent while an answer is due. etcd
	// treats pings more often than every 5 s as an attack.
	pingAfter, pingTimeout = 10 * time.Second, 5 * time.Second
	// maxMessageBytes is the largest message. A server accepts requests of 1.5 MiB by default and
	// refuses larger ones. An answer about one object is smaller than the request that stored it. In a
	// list, it leaves 20 kB for each of pageSize Nodes; larger Nodes are read in smaller pages. A part
	// of a watch is at most as large as a request (WatchCreateRequest.Fragment).
	maxMessageBytes = 4 << 20
	// maxHeaderBytes limits the headers of an answer, which contain at most a sentence.
	maxHeaderBytes = 64 << 10
	// mostKnown is how many versions are remembered as reported by this connection.
	mostKnown = 256
)

// errLost is why a conn does not dial again: what was read over it is only valid for one
// connection.
var errLost = errors.New("connection lost")

// conn is one connection to one member, with the credentials that were read when it was made. It
// never connects again.
type conn struct {
	dial.Uses
	endpoint     string
	number       int64         // differs for each connection of a dialer
	readyTimeout time.Duration // limits the wait until it serves requests
	client       *grpc.ClientConn
	kv           clientv3.KV
	leases       etcdserverpb.LeaseClient
	watches      etcdserverpb.WatchClient

	batches batches
	token   token
	dialled atomic.Bool
	broken  atomic.Pointer[error] // why the connection failed

	mu    sync.Mutex
	known map[reported]bool // versions that this connection reported
}

// reported is a version of an object that a connection reported.
type reported struct {
	key     objects.Key
	version objects.Version
}

// connect connects to an endpoint, and returns when the endpoint serves requests.
func (o Options) connect(to string) (*conn, error) {
	c := &conn{endpoint: to, readyTimeout: o.readyTimeout(), known: map[reported]bool{}, batches: batches{running: make(chan struct{}, 1)}}
	if err := c.open(o); err != nil {
		c.Close()
		return nil, connectFault(o, to, err)
	}
	return c, nil
}

// readyTimeout returns how long to wait until an endpoint serves requests.
func (o Options) readyTimeout() time.Duration {
	return max(connectTimeout/time.Duration(len(o.Endpoints)), connectLeast)
}

func (c *conn) open(o Options) error {
	address, err := endpoint.Address(c.endpoint)
	if err != nil {
		return err
	}
	transport := insecure.NewCredentials()
	if !endpoint.Plain(c.endpoint) {
		config, err := o.tlsConfig()
		if err != nil {
			return err
		}
		transport = &handshakes{credentials.NewTLS(config), c.failed}
	}
	password, err := o.password()
	if err != nil {
		return err
	}
	c.client, err = grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(transport),
		grpc.WithPerRPCCredentials(&c.token),
		grpc.WithContextDialer(c.dial),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithDisableServiceConfig(),
		grpc.WithUnaryInterceptor(checkedCall),
		grpc.WithStreamInterceptor(checkedStream),
		grpc.WithUserAgent("hostler/"+o.Version),
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.readyTimeout, controlplane.ErrNoAnswer)
	defer cancel()
	if err := c.ready(ctx); err != nil {
		if broken := c.broken.Load(); broken != nil {
			return *broken // gRPC replaces it by a text of its own
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	c.kv = clientv3.NewKVFromKVClient(etcdserverpb.NewKVClient(c.client), nil)
	c.leases = etcdserverpb.NewLeaseClient(c.client)
	c.watches = etcdserverpb.NewWatchClient(c.client)
	return c.authenticate(ctx, o.Username, password)
}

// ready waits until the member reports that it serves.
func (c *conn) ready(ctx context.Context) error {
	health, err := grpc_health_v1.NewHealthClient(c.client).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented: // of a proxy or a very old etcd
		return nil
	case err != nil:
		return err
	case health.Status == grpc_health_v1.HealthCheckResponse_NOT_SERVING:
		return errors.New("this member does not serve at the moment, such as during defragmentation")
	}
	return nil
}

// authenticate gets a token for the following requests. A cluster without auth needs none.
func (c *conn) authenticate(ctx context.Context, user, password string) error {
	if user == "" {
		return nil
	}
	answer, err := etcdserverpb.NewAuthClient(c.client).Authenticate(ctx, &etcdserverpb.AuthenticateRequest{Name: user, Password: password})
	switch err = rpctypes.Error(err); {
	case errors.Is(err, rpctypes.ErrAuthNotEnabled):
		return nil
	case err != nil:
		return err
	}
	c.token.set(answer.Token)
	return nil
}

// dial dials the only connection.
func (c *conn) dial(ctx context.Context, address string) (net.Conn, error) {
	if c.dialled.Swap(true) {
		return nil, errLost
	}
	raw, err := (&net.Dialer{Timeout: c.readyTimeout, KeepAlive: pingAfter}).DialContext(ctx, "tcp", address)
	if err != nil {
		c.failed(err)
	}
	return raw, err
}

// failed records the first reason why there is no connection.
func (c *conn) failed(err error) { c.broken.CompareAndSwap(nil, &err) }

// Ready reports whether the connection still serves requests.
func (c *conn) Ready() bool { return c.client.GetState() == connectivity.Ready }

// Close closes the connection.
func (c *conn) Close() {
	if c.client != nil {
		_ = c.client.Close() // callers that wait for it got the error
	}
}

// learn returns the object in an answer about one key, and records that this connection reported
// its version.
func (c *conn) learn(key objects.Key, header *etcdserverpb.ResponseHeader, found []*mvccpb.KeyValue) objects.Object {
	o := objectOf(key, header, found)
	c.confirm(key, o.Version)
	return o
}

// confirm records that this connection reported a version.
func (c *conn) confirm(key objects.Key, v objects.Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= mostKnown {
		clear(c.known)
	}
	c.known[reported{key, v}] = true
}

// knows reports whether this connection reported a version.
func (c *conn) knows(key objects.Key, v objects.Version) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[reported{key, v}]
}
