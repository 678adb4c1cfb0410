// Package cri drives a container runtime that speaks CRI v1 over gRPC on a unix
// socket: containerd, CRI-O, cri-dockerd.
//
// It owns the translation between CRI and package runtime, and what versions of
// these runtimes do differently. It refuses to create anything: no pulls, no
// pods, no exec.
//
// It calls little. A list of pods is two calls, plus one for each container that
// has died since the last list; a list of images and a status are one each; what
// cannot change while the runtime's process lives is asked once a connection.
// Where the socket is containerd's own, package containerd asks its services for what
// CRI does not report it.
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

// MaxAnswerBytes is the largest answer that the adapter receives. It is what
// containerd and CRI-O send at most by default.
const MaxAnswerBytes = 16 << 20

// maxReconnectDelay bounds how long a runtime that returned goes unnoticed.
const maxReconnectDelay = 3 * time.Second

// Options say which runtime to talk to, and how.
type Options = local.Options

// Runtime is one runtime behind a CRI socket. It is safe for concurrent use.
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
	dials atomic.Uint64 // connections made so far: a new one may be a new runtime
	last  atomic.Pointer[net.UnixConn]

	aboutMu sync.Mutex
	about   about

	facts      facts
	imageFacts imageFacts
}

var _ runtime.Runtime = (*Runtime)(nil)

// New prepares a runtime without talking to it: the first call connects, and
// the connection is made again whenever it is lost, at most 3 s after the
// runtime is back. It fails on an endpoint that cannot be a unix socket.
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
	// The target is a placeholder, and becomes the HTTP/2 authority. The dialer has the socket, and
	// no proxy of the environment is used.
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

// Name is the name that every listed object carries.
func (r *Runtime) Name() string { return r.name }

// Endpoint is the socket as a URL, such as unix:///run/containerd/containerd.sock.
func (r *Runtime) Endpoint() string { return "unix://" + r.path }

// Close ends the connection. Calls in progress end with runtime.ErrUnavailable.
func (r *Runtime) Close() error { return r.conn.Close() }
