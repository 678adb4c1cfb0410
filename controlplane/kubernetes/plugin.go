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

// pluginError reports that an exec plugin returned no credentials within the time of a request.
type pluginError struct {
	command string
	cause   error // why the request ended
}

// Error names the plugin. client-go still waits for it.
func (e *pluginError) Error() string {
	return fmt.Sprintf("the exec plugin %s returns no credentials: %v: check what it waits for, or kill it; hostler runs it again", e.command, e.cause)
}

// Unwrap returns why the request ended.
func (e *pluginError) Unwrap() error { return e.cause }

// launched returns the plugin command for a hostler that runs as root. choom(1) starts it, so that
// the kernel may kill it when memory runs out. Unless asRoot, setpriv(1) runs it as nobody, without
// root's groups and without a way to gain rights. setsid(1) then removes the terminal, into which
// it could type.
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

// boundedPlugin returns when the context of a request ends. client-go runs exec plugins without a
// context, so a plugin that hangs would block its caller for ever.
type boundedPlugin struct {
	carrier     http.RoundTripper
	pluginSlots chan struct{}
	plugin      string
	asRoot      bool // the plugin runs as root
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
	case p.pluginSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, late()
	}
	request = request.WithContext(context.WithValue(ctx, requestSent{}, under))
	type answer struct {
		response *http.Response
		err      error
	}
	answers := make(chan answer)
	go func() {
		defer func() { <-p.pluginSlots }()
		response, err := p.carrier.RoundTrip(request)
		select {
		case answers <- answer{response, err}:
		case <-ctx.Done():
			if err == nil {
				_ = response.Body.Close() // the caller has returned
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

// WrappedRoundTripper gives client-go access to the transport below.
func (p *boundedPlugin) WrappedRoundTripper() http.RoundTripper { return p.carrier }

// requestSent is the context key of a flag: the request was sent to the server, and does not wait for
// a plugin.
type requestSent struct{}

// watchedTransport is the transport below the one in which client-go runs a plugin.
type watchedTransport struct{ carrier http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (d watchedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	under, ok := request.Context().Value(requestSent{}).(*atomic.Bool)
	if !ok {
		return d.carrier.RoundTrip(request)
	}
	under.Store(true)
	response, err := d.carrier.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusUnauthorized { // client-go runs the plugin again before it returns this answer
		under.Store(false)
	}
	return response, err
}

// WrappedRoundTripper gives client-go access to the transport below.
func (d watchedTransport) WrappedRoundTripper() http.RoundTripper { return d.carrier }
