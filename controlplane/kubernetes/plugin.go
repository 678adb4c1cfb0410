package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"hostler.io/hostler/internal/oom"
)

// pluginError reports that an exec plugin gave no credentials as long as a request
// could wait for them.
type pluginError struct {
	command string
	cause   error // of the request's end
}

// Error names the plugin, which client-go continues waiting for.
func (e *pluginError) Error() string {
	return fmt.Sprintf("the exec plugin %s returns no credentials: %v: check what it waits for, or kill it; hostler runs it again", e.command, e.cause)
}

// Unwrap returns why the request ended.
func (e *pluginError) Unwrap() error { return e.cause }

// launched returns a plugin as it is started where hostler runs as root: by choom(1), so that the
// kernel may kill it when memory runs out, and unless asRoot by setpriv(1) as nobody. As nobody it
// keeps none of root's groups, cannot gain rights, and has no terminal (setsid(1)) into which it
// could type.
func launched(plugin *clientcmdapi.ExecConfig, asRoot bool) *clientcmdapi.ExecConfig {
	if os.Geteuid() != 0 {
		return plugin
	}
	const nobody = "65534"
	command := append([]string{plugin.Command}, plugin.Args...)
	if !asRoot {
		command = append([]string{"/usr/bin/setpriv", "--reuid=" + nobody, "--regid=" + nobody, "--clear-groups", "--no-new-privs", "--"}, command...)
	}
	if oom.Protected(oom.Proc) {
		command = append([]string{"/usr/bin/choom", "--adjust", "0", "--"}, command...)
	}
	if !asRoot {
		command = append([]string{"/usr/bin/setsid", "--wait"}, command...)
	}
	plugin = plugin.DeepCopy()
	plugin.Command, plugin.Args = command[0], command[1:]
	return plugin
}

// boundedPlugin ends a request with its context. client-go runs exec plugins without
// one, so that a plugin that hangs would hold up its caller for good.
type boundedPlugin struct {
	carrier http.RoundTripper
	turns   chan struct{}
	plugin  string
	asRoot  bool // the plugin runs as root
}

// RoundTrip implements http.RoundTripper.
func (p *boundedPlugin) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	under := &atomic.Bool{}
	late := func() error {
		if under.Load() {
			return context.Cause(ctx)
		}
		return &pluginError{p.plugin, context.Cause(ctx)}
	}
	select {
	case p.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, late()
	}
	request = request.WithContext(context.WithValue(ctx, underWay{}, under))
	type answer struct {
		response *http.Response
		err      error
	}
	answers := make(chan answer)
	go func() {
		defer func() { <-p.turns }()
		response, err := p.carrier.RoundTrip(request)
		select {
		case answers <- answer{response, err}:
		case <-ctx.Done():
			if err == nil {
				_ = response.Body.Close() // nobody reads it any more
			}
		}
	}()
	select {
	case a := <-answers:
		if a.err != nil && !under.Load() && !p.asRoot {
			return nil, fmt.Errorf("%w: the exec plugin %s runs as nobody; if it needs files that only root can read, set controlPlane.kubernetes.execPluginUser: root", a.err, p.plugin)
		}
		return a.response, a.err
	case <-ctx.Done():
		return nil, late()
	}
}

// WrappedRoundTripper lets client-go find the connections below.
func (p *boundedPlugin) WrappedRoundTripper() http.RoundTripper { return p.carrier }

// underWay is the key of a flag in a request's context: whether the request is on its way to the
// server, rather than waiting for a plugin.
type underWay struct{}

// watchedTransport is below what client-go asks a plugin in.
type watchedTransport struct{ carrier http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d watchedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	under, ok := request.Context().Value(underWay{}).(*atomic.Bool)
	if !ok {
		return d.carrier.RoundTrip(request)
	}
	under.Store(true)
	response, err := d.carrier.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusUnauthorized { // client-go runs the plugin again before it returns that
		under.Store(false)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the connections below.
func (d watchedTransport) WrappedRoundTripper() http.RoundTripper { return d.carrier }
