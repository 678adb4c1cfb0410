// Plugin-https is a control plane for hostler in a page of Go: it keeps objects at a
// plain HTTPS endpoint, which knows GET, PUT and DELETE with ETags, and a listing. It
// owns the translation, and refuses to know what a Node is.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "hostler.io/hostler/controlplane/plugin/v1"
)

// bridge answers hostler's calls. It leaves out Watch: hostler then asks now and then.
type bridge struct {
	v1.UnimplementedControlPlaneServer
	endpoint string // without a slash at its end
	client   *http.Client
}

func main() {
	socket := flag.String("socket", "", "the unix socket to serve")
	endpoint := flag.String("url", "", "the endpoint, such as https://fleet.example/v1")
	ca := flag.String("ca", "", "file with the certificate authority of its certificate; the system's if empty")
	certificate := flag.String("cert", "", "file with this host's certificate, if the endpoint wants one")
	key := flag.String("key", "", "file with its key")
	flag.Parse()
	if err := run(*socket, *endpoint, *ca, *certificate, *key); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(socket, endpoint, ca, certificate, key string) error {
	if u, err := url.Parse(endpoint); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("-url %q: not an address such as https://fleet.example/v1", endpoint)
	}
	client, err := newClient(ca, certificate, key)
	if err != nil {
		return err
	}
	syscall.Umask(0o077) // the socket is nobody else's
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("-socket: %w", err)
	}
	server := grpc.NewServer()
	v1.RegisterControlPlaneServer(server, &bridge{endpoint: strings.TrimSuffix(endpoint, "/"), client: client})
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ended, server.Stop)
	return server.Serve(listener)
}

// newClient makes a client that follows nobody elsewhere: a PUT would become a GET.
func newClient(ca, certificate, key string) (*http.Client, error) {
	c := &tls.Config{}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("-ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("-ca %s: no certificate in PEM", ca)
		}
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("-cert, -key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}, CheckRedirect: stay}, nil
}

// Info needs nothing from the endpoint.
func (b *bridge) Info(context.Context, *v1.InfoRequest) (*v1.InfoResponse, error) {
	return &v1.InfoResponse{
		Name: "https", Version: "1.0.0", Endpoint: b.endpoint, Protocols: []uint32{1},
		Abilities: []v1.Ability{v1.Ability_ABILITY_LIST, v1.Ability_ABILITY_TTL},
	}, nil
}

// path is where a key lies below the endpoint.
func path(k *v1.Key) string {
	return strings.TrimRight(k.GetKind()+"/"+k.GetNode()+"/"+k.GetName(), "/")
}

// Get reads an object; its ETag is its version.
func (b *bridge) Get(ctx context.Context, r *v1.GetRequest) (*v1.GetResponse, error) {
	value, etag, err := b.ask(ctx, http.MethodGet, path(r.GetKey()), nil, nil)
	if err != nil {
		return nil, err
	}
	return &v1.GetResponse{Object: &v1.Object{Key: r.GetKey(), Value: value, Version: etag}}, nil
}

// Put stores an object if the ETag is that one, or if there is none.
func (b *bridge) Put(ctx context.Context, r *v1.PutRequest) (*v1.PutResponse, error) {
	header := map[string]string{"If-Match": r.GetInstead()}
	if r.GetInstead() == "" {
		header = map[string]string{"If-None-Match": "*"}
	}
	if r.GetTtlSeconds() > 0 {
		header["Cache-Control"] = fmt.Sprintf("max-age=%d", r.GetTtlSeconds())
	}
	_, etag, err := b.ask(ctx, http.MethodPut, path(r.GetKey()), r.GetValue(), header)
	if err != nil {
		return nil, err
	}
	return &v1.PutResponse{Outcome: &v1.PutResponse_Version{Version: etag}}, nil
}

// Delete removes an object if the ETag is that one, and with a Node its Lease.
func (b *bridge) Delete(ctx context.Context, r *v1.DeleteRequest) (*v1.DeleteResponse, error) {
	var header map[string]string
	if r.GetVersion() != "" {
		header = map[string]string{"If-Match": r.GetVersion()}
	}
	_, _, err := b.ask(ctx, http.MethodDelete, path(r.GetKey()), nil, header)
	if status.Code(err) == codes.NotFound && r.GetVersion() == "" {
		err = nil
	}
	if err == nil && r.GetKey().GetKind() == "nodes" {
		return b.Delete(ctx, &v1.DeleteRequest{Key: &v1.Key{Kind: "leases", Node: r.GetKey().GetNode()}})
	}
	return &v1.DeleteResponse{}, err
}

// List reads a page of the endpoint's listing, which goes on after a path.
func (b *bridge) List(ctx context.Context, r *v1.ListRequest) (*v1.ListResponse, error) {
	folder := path(&v1.Key{Kind: r.GetKind(), Node: r.GetNode()}) + "/"
	text, _, err := b.ask(ctx, http.MethodGet, folder+"?after="+url.QueryEscape(r.GetPage()), nil, nil)
	if err != nil {
		return nil, err
	}
	var listing []struct {
		Path, ETag string
		Value      json.RawMessage
	}
	if err := json.Unmarshal(text, &listing); err != nil {
		return nil, status.Errorf(codes.Unavailable, "listing of %s: %v", folder, err)
	}
	answer := &v1.ListResponse{}
	for _, l := range listing {
		p := append(strings.Split(l.Path, "/"), "", "")
		answer.Objects = append(answer.Objects, &v1.Object{Key: &v1.Key{Kind: p[0], Node: p[1], Name: p[2]}, Value: l.Value, Version: l.ETag})
		answer.Next = l.Path // an empty page is the last
	}
	return answer, nil
}

// ask makes a request, and turns what HTTP says into what gRPC does.
func (b *bridge) ask(ctx context.Context, method, path string, value []byte, header map[string]string) (answer []byte, etag string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, b.endpoint+"/"+path, bytes.NewReader(value))
	if err != nil {
		return nil, "", status.Error(codes.InvalidArgument, err.Error())
	}
	for name, text := range header {
		request.Header.Set(name, text)
	}
	response, err := b.client.Do(request)
	if err == nil {
		answer, err = io.ReadAll(io.LimitReader(response.Body, 8<<20))
		err = errors.Join(err, response.Body.Close())
	}
	if err != nil {
		return nil, "", status.Error(codes.Unavailable, err.Error())
	}
	meaning := map[int]codes.Code{
		http.StatusOK: codes.OK, http.StatusCreated: codes.OK, http.StatusNoContent: codes.OK,
		http.StatusNotFound: codes.NotFound, http.StatusPreconditionFailed: codes.Aborted,
		http.StatusUnauthorized: codes.Unauthenticated, http.StatusForbidden: codes.PermissionDenied,
		http.StatusBadRequest: codes.InvalidArgument, http.StatusRequestEntityTooLarge: codes.InvalidArgument,
	}
	code, known := meaning[response.StatusCode]
	if !known {
		code = codes.Unavailable
	}
	return answer, response.Header.Get("ETag"), status.Errorf(code, "%s %s: %s", method, request.URL, response.Status)
}
