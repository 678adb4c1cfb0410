package kubernetes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"hostler.io/hostler/controlplane/dial"
	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/internal/trust"
)

// Load reads the kubeconfig at path as the client uses it: its current context, with relative paths
// resolved against its folder. It returns an error if a file is missing or invalid, or if the
// server could not be verified.
func Load(path string) (*rest.Config, error) {
	text, err := trust.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w: %s", err, dial.FileHint(err))
	}
	return parse(path, text)
}

// Server returns the address that connections of the kubeconfig at path use, as HOST:PORT: the
// server's, or that of a proxy in front of it.
func Server(path string) (string, error) {
	config, err := Load(path)
	if err != nil {
		return "", err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return "", fmt.Errorf("kubeconfig %s: server %w", path, conceal(err))
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	between, err := proxy(&http.Request{URL: to})
	if err != nil {
		return "", fmt.Errorf("kubeconfig %s: proxy of %s: %w", path, to.Host, conceal(err))
	}
	if between != nil {
		to = between
	}
	defaults := map[string]string{"https": "443", "http": "80", "socks5": "1080", "socks5h": "1080"}
	return net.JoinHostPort(to.Hostname(), cmp.Or(to.Port(), defaults[to.Scheme])), nil
}

// Files returns the kubeconfig and the files of certificates, keys and tokens that it names, as far
// as it can be read. They may be missing.
func Files(path string) []string {
	files := []string{path}
	text, err := trust.ReadFile(path)
	if err != nil {
		return files
	}
	file, err := resolve(path, text)
	if err != nil {
		return files
	}
	for _, cluster := range file.Clusters {
		files = append(files, cluster.CertificateAuthority)
	}
	for _, user := range file.AuthInfos {
		files = append(files, user.ClientCertificate, user.ClientKey, user.TokenFile)
	}
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

// resolve parses a kubeconfig, with relative paths resolved against its folder.
func resolve(path string, text []byte) (*clientcmdapi.Config, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("kubeconfig %s is empty: copy a node's kubeconfig there", path)
	}
	file, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s cannot be read: %s: check it with `kubectl config view --kubeconfig %s`", path, repeated.ReplaceAllString(err.Error(), "…"), path)
	}
	for name, cluster := range file.Clusters {
		cluster.LocationOfOrigin = path
		if _, err := url.Parse(cluster.ProxyURL); err != nil { // clientcmd would repeat the URL in its error
			return nil, fmt.Errorf("kubeconfig %s: proxy-url of cluster %q is not a URL: write it as http://HOST:PORT", path, name)
		}
	}
	for _, user := range file.AuthInfos {
		user.LocationOfOrigin = path
		if user.Exec != nil && user.Exec.InteractiveMode != clientcmdapi.AlwaysExecInteractiveMode {
			user.Exec.InteractiveMode = clientcmdapi.NeverExecInteractiveMode // a daemon has no terminal
		}
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return file, nil
}

// parse does what Load does, for text that was read.
func parse(path string, text []byte) (*rest.Config, error) {
	file, err := resolve(path, text)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w: %s", path, conceal(err), dial.FileHint(err))
	}
	if err := errors.Join(verified(config), checkFiles(config)); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return config, nil
}

// checkFiles refuses files in a kubeconfig that users other than root can change: they could act as
// this host, or run programs as root. It ignores missing files: the code that reads them reports
// that. It sets the path of the exec plugin, so that the program that is checked is the one that
// runs.
func checkFiles(config *rest.Config) error {
	for _, name := range []string{config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile} {
		if name == "" {
			continue
		}
		_, _, err := trust.Path(name)
		if err := refusal(err); err != nil {
			return err
		}
	}
	if config.ExecProvider == nil {
		return nil
	}
	program, err := trust.Command(config.ExecProvider.Command, pluginPath(config.ExecProvider))
	if err == nil {
		config.ExecProvider.Command = program
	}
	return refusal(err)
}

// refusal returns err with its hint if users other than root can change a file; else nil.
func refusal(err error) error {
	if untrusted, ok := errors.AsType[*trust.Error](err); ok {
		return fmt.Errorf("%w: %s", untrusted, untrusted.Hint)
	}
	return nil
}

// fileError reports that credentials, or a file that they name, could not be read within the time
// of a request.
type fileError struct {
	source string
	cause  error // why the request ended
}

// Error names the file.
func (e *fileError) Error() string {
	return fmt.Sprintf("%s cannot be read: %v: its filesystem does not answer; if it is a network mount, check whether its server is reachable", e.source, e.cause)
}

// Unwrap returns why the request ended.
func (e *fileError) Unwrap() error { return e.cause }

// verified refuses a configuration without verification of the server: another server could get this
// node's credentials and send false answers.
func verified(config *rest.Config) error {
	server, err := url.Parse(config.Host)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "":
		return errors.New(sanitize.Userinfo(fmt.Sprintf("server %q does not use TLS: write it as https://HOST:PORT", config.Host)))
	case config.Insecure:
		return errors.New("insecure-skip-tls-verify is not allowed: set certificate-authority instead (kubeadm: /etc/kubernetes/pki/ca.crt)")
	}
	return nil
}
