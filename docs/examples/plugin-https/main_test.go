package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/test/httpstore"
)

// serveVariable has the test's binary be the plugin.
const serveVariable = "HOSTLER_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// endpoint is an HTTPS server and the file with its certificate.
func endpoint(t *testing.T) (url, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(httpstore.New())
	t.Cleanup(server.Close)
	return server.URL, authority(t, server)
}

// authority is the file with a server's certificate.
func authority(t *testing.T, server *httptest.Server) string {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	check(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o644))
	return ca
}

// start runs the plugin as a process of its own, for as long as the test runs, and opens it.
func start(t *testing.T, arguments ...string) *plugin.Store {
	t.Helper()
	folder, err := os.MkdirTemp("", "https-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(folder)) })
	self, err := os.Executable()
	check(t, err)
	socket := filepath.Join(folder, "plugin.sock")
	var text bytes.Buffer
	program := exec.Command(self, append(arguments, "-socket", socket)...)
	program.Env = append(os.Environ(), serveVariable+"=1")
	program.Stderr = &text
	check(t, program.Start())
	t.Cleanup(func() {
		check(t, program.Process.Signal(syscall.SIGTERM))
		if err := program.Wait(); err != nil {
			t.Errorf("the plugin ends with %v on SIGTERM, want success\n%s", err, &text)
		}
	})
	store, err := plugin.New(plugin.Options{Socket: socket, Version: "1.2.3", Poll: 10 * time.Millisecond, Log: new(logtest.Book).Logger()})
	check(t, err)
	t.Cleanup(func() { _ = store.Close() }) // it may be already
	check(t, store.Probe(t.Context()))
	return store
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open starts the plugin over an endpoint of its own.
func open(t *testing.T) *plugin.Store {
	url, ca := endpoint(t)
	return start(t, "-url", url, "-ca", ca)
}

func TestTheExampleIsAStore(t *testing.T) {
	t.Parallel() // it waits for objects to end most of the time
	objectstest.Run(t, func(t *testing.T) objects.Store { return open(t) })
}

func TestTheExampleKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	controlplanetest.Run(t, func(t *testing.T) controlplanetest.Backend {
		return controlplanetest.Backend{Client: objects.New(open(t), objects.Options{}), Expires: true}
	})
}

func TestAnEndpointThatDoesNotProveWhoItIsIsNotAsked(t *testing.T) {
	url, _ := endpoint(t)
	store := start(t, "-url", url)
	_, err := store.Get(t.Context(), objects.Key{Kind: objects.Node, Node: "n"})
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Get() = %v, want that the certificate is not trusted", err)
	}
}

// A redirected PUT would become a GET, whose answer is not that anything was stored.
func TestAnEndpointThatIsElsewhereHasStoredNothing(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			http.Redirect(w, r, "/login", http.StatusFound)
			return
		}
		w.Header().Set("ETag", `"1"`)
	}))
	t.Cleanup(server.Close)
	store := start(t, "-url", server.URL, "-ca", authority(t, server))
	version, err := store.Put(t.Context(), objects.Key{Kind: objects.Node, Node: "n"}, objects.Put{Value: []byte("{}")})
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "302") {
		t.Errorf("Put() = version %q, %v, want that it was sent elsewhere", version, err)
	}
}
