// Package plugin is a store of objects in a plugin: a program that serves protocol 1 (package v1)
// on a unix socket, in any language.
//
// It owns the connection, the check who serves the socket, the deadlines, and the checks of
// answers. It does not know what is behind the plugin. It does not run the plugin, which is
// systemd's job, and does not judge its objects.
package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
	"hostler.io/hostler/internal/sanitize"
)

// Type is the store's name in the configuration.
const Type = "plugin"

// protocol is the only version that hostler supports.
const protocol = 1

const (
	// defaultTimeout and defaultPoll are the defaults of Options.Timeout and Options.Poll.
	defaultTimeout = 10 * time.Second
	defaultPoll    = 10 * time.Second
	// maxReconnectDelay is the longest time until a restarted plugin is noticed.
	maxReconnectDelay = time.Second
	// maxAbout is the maximum number of bytes of each text in the plugin's answer to Info.
	maxAbout = 1 << 10
	// maxAnswerBytes limits every answer except a page: it has one object, whose value hostler has
	// sent, of at most maxValueBytes.
	maxAnswerBytes = 4 << 20
	// maxPageBytes is the largest page of a list: twice the 4 MiB of the protocol, for a plugin that
	// counts only the values.
	maxPageBytes = 8 << 20
	// maxHeaderBytes is the maximum size of an answer's headers. hostler shows maxMessage bytes of
	// them.
	maxHeaderBytes = 64 << 10
	// maxValueBytes is the largest value that is sent. With the rest of the request it is below the 4
	// MiB that a gRPC server accepts by default.
	maxValueBytes = 3 << 20
)

// Options configure a Store. Socket and Log are required.
type Options struct {
	// Socket is the absolute path of the plugin's socket, which may not exist yet.
	Socket string
	// Version is hostler's version.
	Version string
	// Timeout is the longest time of each call except a watch; 10 s if 0.
	Timeout time.Duration
	// Poll is the interval at which an object is read if the plugin cannot watch it. If the plugin
	// can, it is the interval of calls to Info that check whether the plugin still answers. 10 s if 0.
	Poll time.Duration
	Log  *slog.Logger
}

// Store is a client of a plugin. It is safe for concurrent use.
type Store struct {
	o        Options
	log      *slog.Logger
	conn     *grpc.ClientConn
	rpc      v1.ControlPlaneClient
	dials    atomic.Uint64 // number of connections so far: a new one may lead to another plugin
	infoTurn chan struct{} // holds one token; its holder calls Info

	mu      sync.Mutex // guards the fields below
	about   about      // of the plugin that answered last
	refused error      // error of the last attempt to connect; nil if it succeeded
}

// about is a plugin's answer to Info.
type about struct {
	connection        uint64 // number of the connection over which it answered; 0 before the first
	name, version     string
	endpoint          string
	list, watch, ends bool
}

var (
	_ objects.Store = (*Store)(nil)
	_ objects.Ender = (*Store)(nil)
)

// New returns a store that is not connected yet. The first call connects, and a lost connection is
// made again. It returns an error for a path that cannot be a socket.
func New(o Options) (*Store, error) {
	switch {
	case !filepath.IsAbs(o.Socket) || len(o.Socket) > maxPath:
		return nil, fmt.Errorf("plugin's socket %q: not an absolute path of at most %d bytes", o.Socket, maxPath)
	case o.Log == nil || o.Poll < 0 || o.Timeout < 0:
		return nil, errors.New("plugin: log missing, or a negative timeout")
	}
	o.Timeout, o.Poll = cmp.Or(o.Timeout, defaultTimeout), cmp.Or(o.Poll, defaultPoll)
	s := &Store{o: o, log: o.Log.With("component", "plugin", "socket", o.Socket), infoTurn: make(chan struct{}, 1)}
	s.infoTurn <- struct{}{}
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the owner of the socket is checked instead
		grpc.WithAuthority("localhost"),                          // some servers refuse other host names
		grpc.WithUserAgent("hostler/"+o.Version),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnectDelay},
			MinConnectTimeout: o.Timeout,
		}),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
	)
	if err != nil {
		return nil, fmt.Errorf("plugin's socket %s: %w", o.Socket, err)
	}
	s.conn, s.rpc = conn, v1.NewControlPlaneClient(conn)
	return s, nil
}

// Type implements objects.Store.
func (s *Store) Type() string { return Type }

// Endpoint returns the endpoint that the plugin reports, else its socket.
func (s *Store) Endpoint() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.about.endpoint != "" {
		return s.about.endpoint
	}
	return "unix://" + s.o.Socket
}

// Ends reports whether the plugin has reported that it deletes expired objects.
func (s *Store) Ends() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.about.ends
}

// Socket returns the path of the plugin's socket.
func (s *Store) Socket() string { return s.o.Socket }

// Close implements objects.Store.
func (s *Store) Close() error { return s.conn.Close() }

// Probe calls Info, and returns an error if the plugin does not answer or supports no common
// protocol.
func (s *Store) Probe(ctx context.Context) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := s.takeTurn(ctx); err != nil {
		return s.fault(ctx, "get info", err)
	}
	defer s.giveTurn()
	_, err := s.ask(ctx)
	return err
}

// info returns the plugin's answer to Info. It calls Info after each new connection.
func (s *Store) info(ctx context.Context) (about, error) {
	if a, known := s.known(); known {
		return a, nil
	}
	if err := s.takeTurn(ctx); err != nil {
		return about{}, s.fault(ctx, "get info", err)
	}
	defer s.giveTurn()
	if a, known := s.known(); known { // the previous holder of the turn has called Info
		return a, nil
	}
	return s.ask(ctx)
}

// known reports whether the present plugin has answered Info. If the connection was lost unnoticed,
// the next call may still be the first one on a new connection.
func (s *Store) known() (about, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.about, s.about.connection != 0 && s.about.connection == s.dials.Load() && s.conn.GetState() == connectivity.Ready
}

func (s *Store) takeTurn(ctx context.Context) error {
	select {
	case <-s.infoTurn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) giveTurn() { s.infoTurn <- struct{}{} }

// ask calls Info.
func (s *Store) ask(ctx context.Context) (about, error) {
	const operation = "get info"
	if err := trusted(s.o.Socket); err != nil {
		return about{}, s.fault(ctx, operation, err)
	}
	answer, err := s.rpc.Info(ctx, &v1.InfoRequest{Protocols: []uint32{protocol}, HostlerVersion: s.o.Version})
	if err != nil {
		return about{}, reading(s.fault(ctx, operation, err))
	}
	a := about{
		connection: s.dials.Load(), // read after the call, which may have connected
		name:       sanitize.Line(answer.GetName(), maxAbout), version: sanitize.Line(answer.GetVersion(), maxAbout), endpoint: sanitize.Line(answer.GetEndpoint(), maxAbout),
		list:  slices.Contains(answer.GetAbilities(), v1.Ability_ABILITY_LIST),
		watch: slices.Contains(answer.GetAbilities(), v1.Ability_ABILITY_WATCH),
		ends:  slices.Contains(answer.GetAbilities(), v1.Ability_ABILITY_TTL),
	}
	if !slices.Contains(answer.GetProtocols(), protocol) {
		return about{}, s.invalidAnswer(operation, "supports protocol %v, hostler %s supports %d: install versions of both with a common protocol", answer.GetProtocols(), s.o.Version, protocol)
	}
	if a.name == "" {
		return about{}, s.invalidAnswer(operation, "returned no name")
	}
	s.mu.Lock()
	before := s.about
	s.about = a
	s.mu.Unlock()
	if before.connection = a.connection; before != a {
		s.log.Info("connected to plugin", "name", a.name, "version", a.version, "endpoint", a.endpoint, "lists", a.list, "watches", a.watch, "ends objects", a.ends)
	}
	return a, nil
}

// bound adds hostler's deadline to a call, even if its caller allows more time.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if at, has := ctx.Deadline(); has && time.Until(at) <= s.o.Timeout {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.o.Timeout, controlplane.ErrNoAnswer)
}
