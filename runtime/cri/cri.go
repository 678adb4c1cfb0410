// Package cri drives a container runtime that serves CRI v1 over gRPC on a unix socket: containerd,
// CRI-O, cri-dockerd.
//
// It owns the translation between CRI and package runtime, and the differences between versions of
// these runtimes. It never creates anything: no pulls, no pods, no exec.
//
// It makes few calls. A list of pods takes two calls, and one for each container that has died
// since the last list. A list of images and a status take one each. Data that cannot change while
// the runtime's process lives is requested once for each connection. If the socket is containerd's,
// package containerd calls containerd's own services for data that CRI lacks.
package cri

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri/podlog"
	"hostler.io/hostler/runtime/local"
)

// MaxAnswerBytes is the largest response that the adapter accepts. containerd and CRI-O send no
// larger ones by default.
const MaxAnswerBytes = 16 << 20

// maxReconnectDelay bounds how long it takes to notice that a runtime is back.
const maxReconnectDelay = 3 * time.Second

// Options select a runtime, and set limits for its calls.
type Options = local.Options

// Runtime is a runtime behind a CRI socket. It is safe for concurrent use.
type Runtime struct {
	name     string
	path     string // of the socket
	log      *slog.Logger
	observe  func(method string, took time.Duration, err error)
	timeouts local.Timeouts
	procRoot string
	podLogs  string

	conn  *grpc.ClientConn
	cri   criapi.RuntimeServiceClient
	image criapi.ImageServiceClient
	dials atomic.Uint64 // connections made so far; after a new one, the runtime may be another process
	last  atomic.Pointer[net.UnixConn]

	aboutMu sync.Mutex
	about   about

	facts      facts
	imageFacts imageFacts
}

var _ runtime.Runtime = (*Runtime)(nil)

// New prepares a runtime without connecting: the first call connects. A lost connection is opened
// again at most 3 s after the runtime is back. New fails if the endpoint is not a unix socket.
func New(opts Options) (*Runtime, error) {
	opts, path, err := opts.Complete(NameOf)
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		name:       opts.Name,
		path:       path,
		log:        opts.Logger,
		observe:    opts.Observe,
		timeouts:   opts.Timeouts,
		procRoot:   opts.ProcRoot,
		podLogs:    cmp.Or(opts.PodLogs, podlog.Folder),
		facts:      facts{byID: map[string]fact{}},
		imageFacts: imageFacts{turn: make(chan struct{}, 1), byID: map[string]imageFact{}},
	}
	retry := backoff.DefaultConfig
	retry.MaxDelay = maxReconnectDelay
	// The target is a placeholder that becomes the HTTP/2 authority. The dialer knows the socket,
	// and proxy variables of the environment are not used.
	r.conn, err = grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(r.dial),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxAnswerBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: r.timeouts.Query}),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare connection to %s: %w", path, err)
	}
	r.cri = criapi.NewRuntimeServiceClient(r.conn)
	r.image = criapi.NewImageServiceClient(r.conn)
	return r, nil
}

// Name returns the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint returns the socket as a URL, such as unix:///run/containerd/containerd.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.path }

// Close closes the connection. Calls in progress end with runtime.ErrUnavailable.
func (r *Runtime) Close() error { return r.conn.Close() }
