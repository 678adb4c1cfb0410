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
	"hostler.io/hostler/controlplane/etcd/endpoint"
	"hostler.io/hostler/controlplane/objects"
)

const (
	// connectTimeout bounds what it takes until an endpoint serves requests, for three of
	// them together: so that one that does not answer leaves time for the others, and a
	// busy host that has only one has more of it.
	connectTimeout = 7500 * time.Millisecond
	// connectLeast is what each has, however many there are.
	connectLeast = connectTimeout / 3
	// pingAfter and pingTimeout have a connection end on which nothing comes while
	// something is waited for. etcd takes pings that come sooner than 5 s for an attack.
	pingAfter, pingTimeout = 10 * time.Second, 5 * time.Second
	// mostRead bounds an answer: a page of Nodes, each as large as etcd takes them.
	mostRead = pageSize * mostWritten
	// mostWritten is more than a server takes by default, which is 1.5 MiB: so that it
	// is the one to say so.
	mostWritten = 2 << 20
	// mostKnown bounds how many versions are remembered to be of this connection.
	mostKnown = 256
)

// errSpent is why a way makes no second connection: with the first one goes what is
// known to be no older than the server.
var errSpent = errors.New("the connection is lost")

// way is one connection to one member, with the credentials of when it was made. It
// never connects again.
type way struct {
	endpoint string
	patience time.Duration // until it serves requests
	conn     *grpc.ClientConn
	kv       clientv3.KV
	leases   etcdserverpb.LeaseClient
	watches  etcdserverpb.WatchClient
	left     chan struct{} // closed when it is not the present one any more
	underWay int           // requests; guarded by the line's mu

	token   token
	dialled atomic.Bool
	broken  atomic.Pointer[error] // why the connection could not be made

	mu    sync.Mutex
	known map[told]bool // by this connection
}

// told is a version of an object.
type told struct {
	key     objects.Key
	version objects.Version
}

// connect makes a way to an endpoint, and returns once that serves requests.
func (o Options) connect(to string) (*way, error) {
	w := &way{endpoint: to, patience: o.patience(), left: make(chan struct{}), known: map[told]bool{}}
	if err := w.open(o); err != nil {
		w.close()
		return nil, connectFault(o, to, err)
	}
	return w, nil
}

// patience is how long each endpoint has until it serves requests.
func (o Options) patience() time.Duration {
	return max(connectTimeout/time.Duration(len(o.Endpoints)), connectLeast)
}

func (w *way) open(o Options) error {
	address, err := endpoint.Address(w.endpoint)
	if err != nil {
		return err
	}
	transport := insecure.NewCredentials()
	if !endpoint.Plain(w.endpoint) {
		config, err := o.tlsConfig()
		if err != nil {
			return err
		}
		transport = &handshakes{credentials.NewTLS(config), w.failed}
	}
	password, err := o.password()
	if err != nil {
		return err
	}
	w.conn, err = grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(transport),
		grpc.WithPerRPCCredentials(&w.token),
		grpc.WithContextDialer(w.dial),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostRead), grpc.MaxCallSendMsgSize(2*mostWritten)),
		grpc.WithDisableServiceConfig(),
		grpc.WithUserAgent("hostler/"+o.Version),
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), w.patience, controlplane.ErrSilent)
	defer cancel()
	if err := w.ready(ctx); err != nil {
		if broken := w.broken.Load(); broken != nil {
			return *broken // which gRPC tells in words of its own
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	w.kv = clientv3.NewKVFromKVClient(etcdserverpb.NewKVClient(w.conn), nil)
	w.leases = etcdserverpb.NewLeaseClient(w.conn)
	w.watches = etcdserverpb.NewWatchClient(w.conn)
	return w.authenticate(ctx, o.Username, password)
}

// ready waits until the member says that it serves.
func (w *way) ready(ctx context.Context) error {
	health, err := grpc_health_v1.NewHealthClient(w.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented: // by a proxy, or an etcd of long ago
		return nil
	case err != nil:
		return err
	case health.Status == grpc_health_v1.HealthCheckResponse_NOT_SERVING:
		return errors.New("this member does not serve now, as it may while it is defragmented")
	}
	return nil
}

// authenticate gets a token for all requests that follow. A cluster without auth needs
// none.
func (w *way) authenticate(ctx context.Context, user, password string) error {
	if user == "" {
		return nil
	}
	answer, err := etcdserverpb.NewAuthClient(w.conn).Authenticate(ctx, &etcdserverpb.AuthenticateRequest{Name: user, Password: password})
	switch err = rpctypes.Error(err); {
	case errors.Is(err, rpctypes.ErrAuthNotEnabled):
		return nil
	case err != nil:
		return err
	}
	w.token.set(answer.Token)
	return nil
}

// dial makes the one connection.
func (w *way) dial(ctx context.Context, address string) (net.Conn, error) {
	if w.dialled.Swap(true) {
		return nil, errSpent
	}
	conn, err := (&net.Dialer{Timeout: w.patience, KeepAlive: pingAfter}).DialContext(ctx, "tcp", address)
	if err != nil {
		w.failed(err)
	}
	return conn, err
}

// failed keeps the first reason why there is no connection.
func (w *way) failed(err error) { w.broken.CompareAndSwap(nil, &err) }

// stands tells whether there is a connection still.
func (w *way) stands() bool { return w.conn.GetState() == connectivity.Ready }

// close closes the connection.
func (w *way) close() {
	if w.conn != nil {
		_ = w.conn.Close() // what it could say was said to those who waited
	}
}

// learn is what an answer about one key tells, and remembers that this connection did.
func (w *way) learn(key objects.Key, header *etcdserverpb.ResponseHeader, found []*mvccpb.KeyValue) objects.Object {
	o := objectOf(key, header, found)
	w.confirm(key, o.Version)
	return o
}

// confirm remembers that this connection has told a version.
func (w *way) confirm(key objects.Key, v objects.Version) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.known) >= mostKnown {
		clear(w.known)
	}
	w.known[told{key, v}] = true
}

// knows tells whether this connection has told a version.
func (w *way) knows(key objects.Key, v objects.Version) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[told{key, v}]
}
