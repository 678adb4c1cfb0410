package kubernetes_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
)

// patience limits waits for something that is quick on any machine.
const patience = 5 * time.Minute

// over returns a client that reaches the server over the wire.
func over(t *testing.T, w *wire, server *httptest.Server) *kubernetes.Client {
	t.Helper()
	return open(t, write(t, "kubeconfig", config("https://"+w.listener.Addr().String(), "certificate-authority: "+authority(t, server), "token: secret")))
}

func TestAConnectionThatWentDeadIsUsedOnce(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { respond(w, leaseText) })
	wire := newWire(t, server.Listener.Addr().String())
	client := over(t, wire, server)
	renew := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := client.RenewLease(ctx, newLease(t, "n"))
		return err
	}
	for range 3 {
		if err := renew(patience); err != nil {
			t.Fatalf("RenewLease() = %v, want no error", err)
		}
	}
	if n := wire.accepted.Load(); n != 1 {
		t.Fatalf("connections for three renewals = %d, want 1", n)
	}
	wire.cut()
	for limit := 100 * time.Millisecond; wire.dropped.Load() == 0; limit *= 2 { // a busy machine may send nothing in time
		if err := renew(limit); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("RenewLease() over a dead connection = %v, want no answer in time", err)
		}
	}
	if err := renew(patience); err != nil {
		t.Errorf("RenewLease() after that = %v, want no error", err)
	}
	if n := wire.accepted.Load(); n != 2 {
		t.Errorf("connections = %d, want the second renewal on a second one", n)
	}
}

// Otherwise a load balancer would keep the host on the one server of several that is not healthy.
func TestAServerThatCannotServeIsReplacedByAnother(t *testing.T) {
	for name, c := range map[string]struct {
		code        int
		connections int32
	}{
		"etcd is away":             {http.StatusInternalServerError, 4},
		"it goes down":             {http.StatusServiceUnavailable, 4},
		"there is no such lease":   {http.StatusNotFound, 1},
		"it has too much to do":    {http.StatusTooManyRequests, 1},
		"somebody else was faster": {http.StatusConflict, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, c.code, "Reason", "the reason") })
			wire := newWire(t, server.Listener.Addr().String())
			client := over(t, wire, server)
			for range 4 {
				if _, err := client.Lease(t.Context(), "n"); err == nil {
					t.Error("Lease() = no error, want what the server says")
				}
			}
			if n := wire.accepted.Load(); n != c.connections {
				t.Errorf("connections for four requests = %d, want %d", n, c.connections)
			}
		})
	}
}

func TestNobodyIsCalledWithoutACertificate(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server is asked") })
	wire := newWire(t, server.Listener.Addr().String())
	none := errors.New("this node has no certificate yet")
	client, err := kubernetes.New(kubernetes.Options{
		Kubeconfig: write(t, "kubeconfig", config("https://"+wire.listener.Addr().String(), "certificate-authority: "+authority(t, server), "token: secret")),
		Version:    "1.2.3", Log: quiet(), Certificate: func() (*tls.Certificate, error) { return nil, none },
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RenewLease(t.Context(), newLease(t, "n"))
	if n := wire.accepted.Load(); n != 0 || !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), none.Error()) {
		t.Errorf("RenewLease() without a certificate = %v over %d connections, want none, and why", err, n)
	}
}

func TestACallThatIsGivenUpLeavesNoDeadConnection(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { respond(w, nodeText) })
	wire := newWire(t, server.Listener.Addr().String())
	client := over(t, wire, server)
	if _, err := client.Node(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	wire.cut()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	go func() {
		for wire.dropped.Load() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := client.Node(ctx, "n"); !errors.Is(err, context.Canceled) {
		t.Fatalf("Node() over a dead connection = %v, want it cancelled", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.Node(ctx, "n"); err != nil {
		t.Errorf("Node() after that = %v, want no error", err)
	}
}

func TestALeaseDoesNotWaitForAStatus(t *testing.T) {
	started, block := make(chan struct{}), make(chan struct{})
	var once sync.Once
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			once.Do(func() { close(started) })
			<-block
		}
		if strings.Contains(r.URL.Path, "/leases") {
			respond(w, leaseText)
			return
		}
		respond(w, nodeText)
	}))
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := client.UpdateStatus(t.Context(), newNode("n")); err != nil {
			t.Errorf("UpdateStatus() = %v, want no error in the end", err)
		}
	})
	<-started
	for range 3 {
		if _, err := client.RenewLease(t.Context(), newLease(t, "n")); err != nil {
			t.Errorf("RenewLease() beside a slow status = %v, want no error", err)
		}
	}
	close(block)
	wg.Wait()
}

func TestAPIGroupsHaveConnectionsOfTheirOwn(t *testing.T) {
	var mu sync.Mutex
	from := map[string][]string{} // remote address to paths
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		from[r.RemoteAddr] = append(from[r.RemoteAddr], r.URL.Path)
		mu.Unlock()
		if strings.Contains(r.URL.Path, "/leases") {
			respond(w, leaseText)
			return
		}
		respond(w, nodeText)
	}))
	for range 3 {
		if _, err := client.RenewLease(t.Context(), newLease(t, "n")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Node(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
	}
	if len(from) != 2 {
		t.Errorf("connections = %v, want two", from)
	}
	for address, paths := range from {
		for _, path := range paths {
			if strings.Contains(path, "/leases") != strings.Contains(paths[0], "/leases") {
				t.Errorf("connection %s carries %v, want one kind of objects", address, paths)
			}
		}
	}
}

func TestWhatGoesOverTheWire(t *testing.T) {
	const protobuf = "application/vnd.kubernetes.protobuf"
	type seen struct{ contentType, accept, userAgent, authorization string }
	requests := map[string]seen{}
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests[r.Method+" "+r.URL.Path] = seen{r.Header.Get("Content-Type"), r.Header.Get("Accept"), r.UserAgent(), r.Header.Get("Authorization")}
		if r.ProtoMajor != 2 {
			t.Errorf("%s %s came by %s, want HTTP/2", r.Method, r.URL, r.Proto)
		}
		if strings.Contains(r.URL.Path, "/leases") {
			respond(w, leaseText)
			return
		}
		respond(w, nodeText)
	}))
	if _, err := client.RenewLease(t.Context(), newLease(t, "n")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Register(t.Context(), newNode("n"), controlplane.RegisterOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UpdateStatus(t.Context(), newNode("n")); err != nil {
		t.Fatal(err)
	}
	for request, contentType := range map[string]string{
		"POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": protobuf,
		"POST /api/v1/nodes":           protobuf,
		"PATCH /api/v1/nodes/n/status": "application/strategic-merge-patch+json",
	} {
		got, ok := requests[request]
		if !ok {
			t.Errorf("requests = %v, want %s among them", requests, request)
			continue
		}
		if got.contentType != contentType || !strings.HasPrefix(got.accept, protobuf) || !strings.HasPrefix(got.userAgent, "hostler/1.2.3 (") || got.authorization != "Bearer secret" {
			t.Errorf("%s = %+v, want content %s, protobuf accepted, hostler as user agent and the token", request, got, contentType)
		}
	}
	if len(requests) != 3 {
		t.Errorf("requests = %v, want three", requests)
	}
}

func TestAKubeconfigMayComeLaterAndChange(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			return
		}
		respond(w, nodeText)
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	client := open(t, path)
	_, err := client.Node(t.Context(), "n")
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), path) || client.Endpoint() != path {
		t.Errorf("Node() without a kubeconfig = %v at %s, want an unavailable control plane, and the path", err, client.Endpoint())
	}
	put := func(token string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(config(server.URL, "certificate-authority: "+authority(t, server), "token: "+token)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("bad")
	for range 2 {
		_, err = client.Node(t.Context(), "n")
		if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), path) || client.Endpoint() != server.URL {
			t.Errorf("Node() with bad credentials = %v, want an unavailable control plane, and the path", err)
		}
	}
	put("good")
	_, _ = client.Node(t.Context(), "n") // this failure makes it read the file again
	if _, err := client.Node(t.Context(), "n"); err != nil {
		t.Errorf("Node() once the kubeconfig is right = %v, want no error", err)
	}
}

func TestAPluginThatHangsBlocksNobodyForGood(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "go")
	if err := os.Chmod(filepath.Dir(filepath.Dir(fifo)), 0o755); err != nil {
		t.Fatal(err)
	}
	gate := writeProgram(t, fmt.Sprintf("#!/bin/sh\nwhile ! [ -e %s ]; do sleep 0.02; done\n"+
		`echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"late"}}'`+"\n", fifo))
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer late" {
			refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			return
		}
		respond(w, leaseText)
	})
	client := open(t, write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server),
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: "+gate+", interactiveMode: IfAvailable}")))
	named := 0                                         // on a busy machine, a call may not even reach the plugin
	for calls := 0; calls < 20 || named < 2; calls++ { // more than may wait at the same time
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		_, err := client.Lease(ctx, "n")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Lease() with a plugin that hangs = %v, want it to end with its context", err)
		}
		if strings.Contains(err.Error(), "exec plugin "+gate) {
			named++
		} else if calls == 200 {
			t.Fatalf("Lease() with a plugin that hangs = %v, want it to name the plugin", err)
		}
	}
	if err := os.WriteFile(fifo, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := client.Lease(ctx, "n"); err != nil {
		t.Errorf("Lease() once the plugin answers = %v, want no error", err)
	}
}

// A plugin may hang, print without end, or leave a process behind that keeps its output open. Other
// processes of its user can keep it open, too.
func TestAPluginIsBounded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs a program as another user")
	}
	const credential = `echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'` + "\n"
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { respond(w, leaseText) })
	for name, c := range map[string]struct {
		script, user string
		limit        time.Duration
		want         string // part of the error; empty for none
	}{
		"it leaves a process":   {"sleep 86400 &\necho $! >PID\n" + credential, pluginUser, time.Second, ""},
		"it hangs":              {"echo $$ >PID\nexec sleep 86400\n", pluginUser, time.Second, "exit code 137"},
		"it hangs as root":      {"echo $$ >PID\nexec sleep 86400\n", "root", time.Second, "exit code 137"},
		"it prints without end": {"exec yes\n", pluginUser, time.Hour, "exit code 141"},
		"it fails":              {"exit 7\n", pluginUser, time.Hour, "exit code 7"},
	} {
		t.Run(name, func(t *testing.T) {
			pid := write(t, "pid", "")
			if err := os.Chmod(pid, 0o666); err != nil {
				t.Fatal(err)
			}
			plugin := writeProgram(t, "#!/bin/sh\n"+strings.ReplaceAll(c.script, "PID", pid))
			kubeconfig := write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server),
				"exec: {apiVersion: client.authentication.k8s.io/v1, command: "+plugin+", interactiveMode: Never}"))
			lease := func(limit time.Duration) error {
				client, err := kubernetes.New(kubernetes.WithPluginTime(kubernetes.Options{Kubeconfig: kubeconfig, PluginUser: c.user, Log: quiet()}, limit))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = client.Close() }()
				_, err = client.Lease(t.Context(), "n")
				return err
			}
			err := lease(c.limit)
			for limit := 2 * c.limit; err != nil && c.want == "" && limit < patience; limit *= 2 { // a busy machine
				err = lease(limit)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Lease() = %v, want %q", err, c.want)
			}
			text, err := os.ReadFile(pid)
			if err != nil {
				t.Fatal(err)
			}
			left, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				return
			}
			process, err := unix.PidfdOpen(left, 0)
			if err != nil && c.want == "" {
				t.Errorf("no process is left: %v", err)
			}
			if err != nil {
				return // it has ended
			}
			defer unix.Close(process)
			wait := patience
			if c.want == "" { // it goes on
				wait = 0
				defer func() { _ = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0) }()
			}
			ended, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(wait.Milliseconds()))
			if (ended > 0) != (c.want != "") {
				t.Errorf("process %d has ended: %d (%v), want %t", left, ended, err, c.want != "")
			}
		})
	}
}

// Unlike hostler, it has no better OOM score than other processes. The environment of a process can
// be read by all processes of its user, and hostler's may have secrets.
func TestAPluginRunsAsItsUserWithFewVariables(t *testing.T) {
	const score = "/proc/self/oom_score_adj"
	plugin := writeProgram(t, "#!/bin/sh\n"+`variables=$(tr '\0' '\n' </proc/$$/environ | sed -n 's|=.*||p' | sort | tr '\n' ',')
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"'"$(cat `+score+`)-$(id -u)-$(id -g)-$(id -G)-$HOME-$variables"'"}}'`+"\n")
	own, err := os.ReadFile(score)
	if err != nil {
		t.Fatal(err)
	}
	if os.WriteFile(score, []byte("-900"), 0o644) == nil { // as in hostler.service; only root may do this
		t.Cleanup(func() { _ = os.WriteFile(score, own, 0o644) })
		own = []byte("0")
	}
	t.Setenv("HOSTLER_SECRET", "s")
	t.Setenv("no_proxy", "none.example")
	for user, want := range map[string]string{pluginUser: "1-1-1-/-", "root": "0-0-0-/root-"} {
		want = strings.TrimSpace(string(own)) + "-" + want + "HOME,KUBERNETES_EXEC_INFO,LANG,LOGNAME,PATH,PLUGIN,USER,no_proxy,"
		got := make(chan string, 9)
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got <- strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			respond(w, leaseText)
		})
		client, err := kubernetes.New(kubernetes.Options{
			Kubeconfig: write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server),
				"exec: {apiVersion: client.authentication.k8s.io/v1, command: "+plugin+", env: [{name: PLUGIN, value: x}], interactiveMode: IfAvailable}")),
			PluginUser: user, Log: quiet(),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Lease(t.Context(), "n")
		_ = client.Close()
		if err != nil {
			t.Fatalf("Lease() = %v", err)
		}
		token := <-got
		if os.Geteuid() != 0 { // it runs as the user of hostler
			want = fmt.Sprintf("%s-%d-", strings.TrimSpace(string(own)), os.Geteuid())
			token = token[:min(len(token), len(want))]
		}
		if token != want {
			t.Errorf("a plugin of %s runs as %s, want %s", user, token, want)
		}
	}
}

func TestAHostWithoutTheUserOfPluginsSaysWhatToDo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root runs a program as another user")
	}
	client, err := kubernetes.New(kubernetes.Options{
		Kubeconfig: write(t, "kubeconfig", config("https://192.0.2.1:6443", "", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, interactiveMode: Never}")),
		PluginUser: "hostler-none", Log: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Lease(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), `no user "hostler-none" on this host`) || !strings.Contains(err.Error(), "execPluginUser: root") {
		t.Errorf("Lease() = %v, want that the user is missing, and what to do", err)
	}
}

// A plugin runs again whenever its credential expires.
func TestAPluginThatOthersCanChangeByNowIsNotRun(t *testing.T) {
	folder := t.TempDir()
	ran := filepath.Join(folder, "ran")
	shell := writeProgram(t, "#!/bin/sh\ntouch "+ran+"\n")
	plugin := writeProgram(t, "#!"+shell+"\n")
	client := open(t, write(t, "kubeconfig", config("https://192.0.2.1:6443", "",
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: "+plugin+", interactiveMode: Never}")))
	if err := errors.Join(os.Chmod(folder, 0o777), os.Chmod(shell, 0o757)); err != nil {
		t.Fatal(err)
	}
	_, err := client.Lease(t.Context(), "n")
	if _, missing := os.Stat(ran); missing == nil || err == nil || !strings.Contains(err.Error(), shell+" is writable by users other than root") {
		t.Errorf("Lease() = %v, ran: %v, want the plugin not to be run", err, missing == nil)
	}
}

func TestAPluginThatItsUserCannotRunSaysWhatToDo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program as another user")
	}
	plugin := write(t, "plugin", "#!/bin/sh\n")
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { respond(w, leaseText) })
	client := open(t, write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server),
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: "+plugin+", interactiveMode: IfAvailable}")))
	if _, err := client.Lease(t.Context(), "n"); err == nil || !strings.Contains(err.Error(), "execPluginUser: root") {
		t.Errorf("Lease() with a plugin that its user cannot run = %v, want the setting that helps", err)
	}
}

// An unreachable server is not an error of the plugin.
func TestAPluginIsNotBlamedForTheServer(t *testing.T) {
	plugin := writeProgram(t, "#!/bin/sh\n"+
		`echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'`+"\n")
	asked := make(chan struct{}, 1)
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	client := open(t, write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server),
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: "+plugin+", interactiveMode: IfAvailable}")))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := client.Lease(ctx, "n"); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "plugin "+plugin) {
		t.Errorf("Lease() of a server that does not answer = %v, want the plugin not blamed", err)
	}
}

func TestATokenFileIsReadAgain(t *testing.T) {
	token := write(t, "token", "one\n")
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		want, err := os.ReadFile(token)
		if err != nil || got != strings.TrimSpace(string(want)) {
			refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		respond(w, leaseText)
	})
	client := open(t, write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server), "tokenFile: "+token)))
	if _, err := client.Lease(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Lease(t.Context(), "n"); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Lease() with a token that is outdated = %v, want an unavailable control plane", err)
	}
	if _, err := client.Lease(t.Context(), "n"); err != nil {
		t.Errorf("Lease() after that = %v, want the new token to be used", err)
	}
}

func TestCallsUnderWayOutliveANewCertificate(t *testing.T) {
	started, block := make(chan struct{}), make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes/slow" {
			close(started)
			<-block
		}
		respond(w, strings.Replace(nodeText, `"n"`, strconv.Quote(path.Base(r.URL.Path)), 1))
	})
	wire := newWire(t, server.Listener.Addr().String())
	client := over(t, wire, server)
	slow := make(chan error, 1)
	go func() {
		_, err := client.Node(t.Context(), "slow")
		slow <- err
	}()
	<-started
	client.Reconnect()
	if _, err := client.Node(t.Context(), "n"); err != nil {
		t.Errorf("Node() after Reconnect() = %v, want no error", err)
	}
	if n := wire.accepted.Load(); n != 2 {
		t.Errorf("connections = %d, want a new one after Reconnect()", n)
	}
	close(block)
	if err := <-slow; err != nil {
		t.Errorf("Node() that was in progress = %v, want no error", err)
	}
}
