package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
)

// AccountFolder is where kubelet puts the credentials of a pod's service account.
const AccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// Account is a pod's service account. kubelet replaces its token before it expires. The token is
// read again within a minute, and after a request that the server rejects.
type Account struct {
	Server string // URL
	Folder string // of the files token and ca.crt
}

// PodAccount returns the service account of the pod that this process runs in. The error says what
// is missing.
func PodAccount(getenv func(string) string) (Account, error) {
	const host, port = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
	a := Account{Server: "https://" + net.JoinHostPort(getenv(host), getenv(port)), Folder: AccountFolder}
	for _, name := range []string{host, port} {
		if getenv(name) == "" {
			return a, fmt.Errorf("no pod: the environment has no %s", name)
		}
	}
	for _, file := range []string{a.token(), a.authority()} {
		if _, err := os.Stat(file); err != nil {
			return a, fmt.Errorf("no service account: %w: set automountServiceAccountToken: true in the pod", err)
		}
	}
	return a, nil
}

func (a Account) token() string     { return filepath.Join(a.Folder, "token") }
func (a Account) authority() string { return filepath.Join(a.Folder, "ca.crt") }

// load reads the files. It does not check their owner as for a kubeconfig: every user may write to
// kubelet's folder, but it is mounted read-only.
func (a Account) load() (*rest.Config, error) {
	token, err := os.ReadFile(a.token())
	if token = bytes.TrimSpace(token); err == nil && len(token) == 0 {
		err = errors.New("token is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("service account %s: %w: check the pod's volume of its service account", a.Folder, err)
	}
	config := &rest.Config{
		Host: a.Server, BearerToken: string(token), BearerTokenFile: a.token(),
		TLSClientConfig: rest.TLSClientConfig{CAFile: a.authority()},
	}
	return config, verified(config)
}

// load reads the credentials.
func (o Options) load() (*rest.Config, error) {
	if o.Account != nil {
		return o.Account.load()
	}
	return Load(o.Kubeconfig)
}

// path returns the path of the credentials.
func (o Options) path() string {
	if o.Account != nil {
		return o.Account.Folder
	}
	return o.Kubeconfig
}

// source describes the credentials.
func (o Options) source() string {
	if o.Account != nil {
		return "service account " + o.Account.Folder
	}
	return "kubeconfig " + o.Kubeconfig
}
