// Command worker measures the cost of a second, unprivileged process that would serve metrics and
// the network API and contain the control plane clients. docs/explanation/security.md has the
// result.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/metrics"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/plugin"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: worker KUBECONFIG, of a server that need not answer")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string) error {
	log, started := slog.New(slog.DiscardHandler), time.Now()
	debug.SetGCPercent(50) // as in the agent
	handler := metrics.New().Handler(func() metrics.State { return metrics.State{} })
	routes := api.NetworkRoutes(nil, handler, func() api.Names { return api.Names{} }, log)
	for _, h := range []http.Handler{handler, routes} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
	_, errEtcd := etcd.New(etcd.Options{Endpoints: []string{"https://192.0.2.1"}, Prefix: "/hostler"})
	_, errPlugin := plugin.New(plugin.Options{Socket: "/nowhere", Log: log})
	client, err := kubernetes.New(kubernetes.Options{Kubeconfig: kubeconfig, Log: log})
	if err := errors.Join(err, errEtcd, errPlugin); err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := client.Node(ctx, "n"); err != nil && !errors.Is(err, controlplane.ErrUnavailable) {
		return err
	}
	fmt.Println("ready after", time.Since(started).Round(time.Millisecond))
	runtime.GC()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Pss:") || strings.HasPrefix(line, "Anonymous:") {
			fmt.Print(line)
		}
	}
	return err
}
