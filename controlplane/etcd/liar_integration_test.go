//go:build integration

package etcd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	bed "hostler.io/hostler/test/etcd"
)

// tamperer answers instead of a member, with the member's certificate. It forwards requests and
// answers. While it tampers, it replaces the object in an answer by another one.
type tamperer struct {
	tampers atomic.Bool
	member  *grpc.ClientConn
	address string // of its own
}

func newTamperer(t *testing.T, c *bed.Cluster, user bed.Credentials) *tamperer {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := tls.LoadX509KeyPair(c.Identity.Certificate, c.Identity.Key)
	check(err)
	as, err := tls.LoadX509KeyPair(user.Certificate, user.Key)
	check(err)
	authority, err := os.ReadFile(c.CAFile)
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	member, err := url.Parse(c.Members[0].Endpoint)
	check(err)
	l := &tamperer{}
	l.member, err = grpc.NewClient("passthrough:///"+member.Host, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: trusted, Certificates: []tls.Certificate{as},
	})))
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	l.address = listener.Addr().String()
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}})),
		grpc.ForceServerCodec(verbatim{}), grpc.UnknownServiceHandler(l.handOn),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}), // as in etcd
	)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // if it was stopped before it began to serve
			t.Error(err)
		}
		check(l.member.Close())
	})
	return l
}

// handOn is a grpc.StreamHandler that forwards a stream.
func (l *tamperer) handOn(_ any, client grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(client)
	asked, _ := metadata.FromIncomingContext(client.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(client.Context(), asked.Copy()))
	defer cancel()
	member, err := l.member.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method, grpc.ForceCodec(verbatim{}))
	if err != nil {
		return err
	}
	go func() {
		// An error here ends the stream, and the receiver gets it.
		var request []byte
		for client.RecvMsg(&request) == nil && member.SendMsg(&request) == nil {
		}
		_ = member.CloseSend()
	}()
	for {
		var answer []byte
		if err := member.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if l.tampers.Load() {
			if answer, err = tamper(method, answer); err != nil {
				return err
			}
		}
		if err := client.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// tamper replaces the objects in an answer.
func tamper(method string, answer []byte) ([]byte, error) {
	switch method {
	case "/etcdserverpb.KV/Range":
		var found etcdserverpb.RangeResponse
		if err := proto.Unmarshal(answer, &found); err != nil {
			return nil, err
		}
		exchange(found.Kvs)
		return proto.Marshal(&found)
	case "/etcdserverpb.KV/Txn":
		var found etcdserverpb.TxnResponse
		if err := proto.Unmarshal(answer, &found); err != nil {
			return nil, err
		}
		for _, part := range found.Responses {
			exchange(part.GetResponseRange().GetKvs())
		}
		return proto.Marshal(&found)
	}
	return answer, nil
}

// exchange gives objects other names.
func exchange(objects []*mvccpb.KeyValue) {
	for _, o := range objects {
		name := []byte(path.Base(string(o.Key)))
		o.Key, o.Value = bytes.ReplaceAll(o.Key, name, []byte("another")), bytes.ReplaceAll(o.Value, name, []byte("another"))
	}
}

// verbatim is a codec that does not decode messages.
type verbatim struct{}

// Name implements encoding.Codec. It is the name of the forwarded codec.
func (verbatim) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (verbatim) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

// Unmarshal implements encoding.Codec.
func (verbatim) Unmarshal(text []byte, message any) error {
	*message.(*[]byte) = bytes.Clone(text)
	return nil
}
