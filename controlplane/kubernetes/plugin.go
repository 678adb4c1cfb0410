package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"hostler.io/hostler/internal/account"
	"hostler.io/hostler/internal/oom"
	"hostler.io/hostler/internal/trust"
)

// root is the user that may do everything.
const root = "root"

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

// pluginPath returns the PATH of a plugin: that of the kubeconfig, or hostler's, without the folders
// that users other than root can change.
func pluginPath(plugin *clientcmdapi.ExecConfig) string {
	path := os.Getenv("PATH")
	for _, v := range plugin.Env {
		if v.Name == "PATH" {
			path = v.Value
		}
	}
	return trust.SearchPath(path)
}

// inherited are the variables that a plugin gets from hostler's environment, in small or capital
// letters.
var inherited = []string{"http_proxy", "https_proxy", "no_proxy", "all_proxy"}

// pluginTime is when a plugin is killed, and how long a process that it has left running may keep its
// output open.
const pluginTime = 2 * time.Minute

// bounds is a script that runs a plugin. client-go waits without a limit, and keeps all output, so
// the script passes on 1 MiB, and ends although another process keeps the output of the plugin open.
// Its exit code is that of the plugin.
const bounds = `unset PWD SHLVL
exec 3>&1
code=$({ { "$@" 3>&- 4>&-; echo $? >&4; } | /usr/bin/timeout "$0" /usr/bin/dd bs=65536 count=1048576 iflag=count_bytes status=none >&3; } 4>&1)
exit "$code"`

// launched returns the plugin command for a hostler that runs as root, which runs it as a user of
// this host. choom(1) starts it, so that the kernel may kill it when memory runs out. Unless the
// user is root, setpriv(1) changes the user, without root's groups and without a way to gain rights.
// timeout(1) kills it after limit. setsid(1) removes the terminal, into which it could type. env(1)
// removes the variables of hostler's environment that are not inherited. Only their names are in the
// command line, which all users can read.
func launched(plugin *clientcmdapi.ExecConfig, name string, limit time.Duration) (*clientcmdapi.ExecConfig, error) {
	path := clientcmdapi.ExecEnvVar{Name: "PATH", Value: pluginPath(plugin)}
	plugin = plugin.DeepCopy()
	if os.Geteuid() != 0 {
		plugin.Env = append(plugin.Env, path)
		return plugin, nil
	}
	command, home := append([]string{plugin.Command}, plugin.Args...), "/root"
	if name != root {
		a, err := account.Lookup(name)
		if missing, ok := errors.AsType[*account.Error](err); ok {
			return nil, fmt.Errorf("run exec plugin %s: %w: %s, or set controlPlane.kubernetes.execPluginUser: root", plugin.Command, err, missing.Hint)
		}
		if err != nil {
			return nil, fmt.Errorf("run exec plugin %s: %w", plugin.Command, err)
		}
		home = "/"
		command = append([]string{"/usr/bin/setpriv", fmt.Sprintf("--reuid=%d", a.UID), fmt.Sprintf("--regid=%d", a.GID), "--clear-groups", "--no-new-privs", "--"}, command...)
	}
	if oom.Protected(oom.Proc) {
		command = append([]string{"/usr/bin/choom", "--adjust", "0", "--"}, command...)
	}
	seconds := fmt.Sprint(limit.Seconds())
	command = append([]string{"/usr/bin/timeout", "--signal=KILL", seconds}, command...)
	if name != root {
		command = append([]string{"/usr/bin/setsid", "--wait"}, command...)
	}
	command = append([]string{"/bin/sh", "-c", bounds, seconds}, command...)
	own := []clientcmdapi.ExecEnvVar{{Name: "HOME", Value: home}, {Name: "USER", Value: name}, {Name: "LOGNAME", Value: name}, {Name: "LANG", Value: "C.UTF-8"}}
	plugin.Env = append(append(own, plugin.Env...), path) // of two values, the last one counts
	cleared := []string{"/usr/bin/env"}
	for _, variable := range os.Environ() {
		variable, _, _ := strings.Cut(variable, "=")
		set := slices.ContainsFunc(plugin.Env, func(v clientcmdapi.ExecEnvVar) bool { return v.Name == variable })
		if !set && !slices.Contains(inherited, strings.ToLower(variable)) {
			cleared = append(cleared, "-u", variable)
		}
	}
	command = append(cleared, command...)
	plugin.Command, plugin.Args = command[0], command[1:]
	return plugin, nil
}

// boundedPlugin returns when the context of a request ends. client-go runs exec plugins without a
// context, so a plugin that hangs would block its caller for ever.
type boundedPlugin struct {
	carrier     http.RoundTripper
	pluginSlots chan struct{}
	plugin      string
	path        string // PATH of the plugin
	user        string // runs the plugin
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
		// The files of the plugin may have changed since the kubeconfig was read.
		_, err := trust.Command(p.plugin, p.path)
		err = refusal(err)
		var response *http.Response
		if err == nil {
			response, err = p.carrier.RoundTrip(request)
		}
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
		if _, refused := errors.AsType[*trust.Error](a.err); a.err != nil && !under.Load() && !refused && p.user != root {
			return nil, fmt.Errorf("%w: the exec plugin %s runs as %s; if it needs files that only root can read, set controlPlane.kubernetes.execPluginUser: root", a.err, p.plugin, p.user)
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
