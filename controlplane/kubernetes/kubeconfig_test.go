package kubernetes_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/internal/trust"
)

func TestKubeconfigsThatAreRefused(t *testing.T) {
	const here, skip = "https://192.0.2.1:6443", "insecure-skip-tls-verify: true"
	for name, check := range map[string]struct {
		text    string
		message []string
	}{
		"an empty file":                             {"\n", []string{"is empty"}},
		"no YAML":                                   {"{", []string{"cannot be read", "kubectl config view"}},
		"no context":                                {"apiVersion: v1\nkind: Config\n", []string{"kubeconfig"}},
		"a server that is not verified":             {config(here, skip, "token: t"), []string{"insecure-skip-tls-verify", "certificate-authority"}},
		"a server without TLS":                      {config("http://192.0.2.1:8080", "", "token: t"), []string{"http://192.0.2.1:8080", "https://"}},
		"a server without TLS on this host":         {config("http://127.0.0.1:8001", "", "token: t"), []string{"https://"}},
		"a server without a scheme":                 {config("192.0.2.1:6443", "", "token: t"), []string{"https://HOST:PORT"}},
		"an authority's file that is not there":     {config(here, "certificate-authority: ca.crt", "token: t"), []string{"ca.crt", "no such file", "create the file"}},
		"a certificate's file that is not there":    {config(here, "", "client-certificate: c.crt, client-key: c.key"), []string{"c.crt", "no such file"}},
		"a token's file that is not there":          {config(here, "", "tokenFile: token"), []string{"token", "no such file"}},
		"a certificate without a key":               {config(here, "", "client-certificate-data: aGk="), []string{"client-key"}},
		"a plugin of a version that is not known":   {config(here, "", "exec: {apiVersion: v9, command: c, interactiveMode: Never}"), []string{"v9"}},
		"an authentication provider of the past":    {config(here, "", "auth-provider: {name: gcp}"), []string{"gcp"}},
		"a current context that is not in the file": {strings.Replace(config(here, "", "token: t"), "current-context: x", "current-context: y", 1), []string{"y"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "kubeconfig", check.text)
			_, err := kubernetes.Load(path)
			if err == nil {
				_, err = open(t, path).Node(t.Context(), "n")
			}
			if err == nil {
				t.Fatalf("Load(%s) = no error, want one that says %q", check.text, check.message)
			}
			for _, part := range append(check.message, path) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Load() = %v, want it to say %q", err, part)
				}
			}
		})
	}
	_, err := kubernetes.Load(filepath.Join(t.TempDir(), "kubeconfig"))
	if err == nil || !strings.Contains(err.Error(), "create the file") {
		t.Errorf("Load() of a file that is not there = %v, want a hint", err)
	}
}

// Users who may read status, log and conditions may not be allowed to read the kubeconfig.
func TestNoErrorRepeatsASecretOfAKubeconfig(t *testing.T) {
	const here, secret = "https://127.0.0.1:1", "hunter2"
	plugin := write(t, "plugin", "#!/bin/sh\nprintf '%s\\n' \"$TOKEN\"\n")
	for _, path := range []string{plugin, filepath.Dir(plugin), filepath.Dir(filepath.Dir(plugin))} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exec := "exec: {apiVersion: client.authentication.k8s.io/v1, command: " + plugin + ", args: [--token, hunter2], env: [{name: TOKEN, value: %q}], interactiveMode: Never}"
	for name, text := range map[string]string{
		"a user in the server's URL":               config("https://user:hunter2@127.0.0.1:1", "", "token: t"),
		"a user in a URL that is none":             config("https://user:hunter2@127.0.0.1:port", "", "token: t"),
		"a blank in a user in a URL":               config("https://user:a hunter2@127.0.0.1:1", "", "token: t"),
		"a user in a URL without TLS":              config("http://user:hunter2@127.0.0.1:1", "", "token: t"),
		"a user in the proxy's URL":                config(here, "proxy-url: 'http://user:hunter2@127.0.0.1:1'", "token: t"),
		"a user in a proxy's URL that is none":     config(here, "proxy-url: 'http://user:a hunter2@127.0.0.1:1'", "token: t"),
		"a user in a proxy's URL of other schemes": config(here, "proxy-url: 'ftp://user:hunter2@127.0.0.1:1'", "token: t"),
		"a password that YAML takes for an alias":  config(here, "", "username: u, password: *hunter2"),
		"a password that is a list":                config(here, "", "username: u, password: [hunter2]"),
		"a token in two lines":                     config(here, "", `token: "hunter2\nhunter2"`),
		"a key that is none":                       config(here, "", "client-certificate-data: aHVudGVyMg==, client-key-data: aHVudGVyMg=="),
		"a key that is no base64":                  config(here, "", "client-certificate-data: 'hunter2!', client-key-data: 'hunter2!'"),
		"an authentication provider":               config(here, "", "auth-provider: {name: gcp, config: {access-token: hunter2}}"),
		"a plugin that prints a token":             config(here, "", fmt.Sprintf(exec, secret)),
		"a plugin that prints YAML":                config(here, "", fmt.Sprintf(exec, "token: hunter2")),
		"a plugin that prints an alias":            config(here, "", fmt.Sprintf(exec, "*hunter2")),
		"a plugin that prints a token of a kind":   config(here, "", fmt.Sprintf(exec, `{"kind":"Other","apiVersion":"v1","status":{"token":"hunter2"}}`)),
		"a plugin whose command is not there":      config(here, "", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /nowhere, env: [{name: T, value: hunter2}], interactiveMode: Never}"),
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "kubeconfig", text)
			client := open(t, path)
			_, err := client.Node(t.Context(), "n")
			if err == nil {
				t.Fatal("Node() = no error, want one: nobody listens there")
			}
			_, where := kubernetes.Server(path)
			if output := fmt.Sprint(err, where, client.Endpoint()); strings.Contains(output, secret) || strings.Contains(output, "aHVudGVyMg") {
				t.Errorf("Node(), Server() and Endpoint() = %s, want them not to repeat %s", output, secret)
			}
		})
	}
}

// client-go itself logs the output of a plugin that it runs again.
func TestNoLineOfTheLogRepeatsASecretOfAPlugin(t *testing.T) {
	asked := filepath.Join(t.TempDir(), "asked")
	plugin := write(t, "plugin", "#!/bin/sh\n[ -e "+asked+" ] && echo '*hunter2' && exit\n>"+asked+"\n"+
		`echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"hunter2"}}'`+"\n")
	for path, mode := range map[string]os.FileMode{plugin: 0o755, filepath.Dir(plugin): 0o755, filepath.Dir(filepath.Dir(plugin)): 0o755, filepath.Dir(asked): 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	})
	var log bytes.Buffer
	kubernetes.LogTo(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(klog.ClearLogger)
	client := open(t, write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server),
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: "+plugin+", interactiveMode: Never}")))
	_, err := client.Node(t.Context(), "n")
	if output := log.String(); err == nil || strings.Contains(output, "hunter2") || !strings.Contains(output, "decoding stdout") {
		t.Errorf("Node() = %v with the log\n%swant it without what the plugin printed", err, output)
	}
}

// A user who can change one of these files could act as this host, or run programs on it.
func TestAKubeconfigIsRefusedIfOthersCanChangeAFileOfIt(t *testing.T) {
	const here = "https://192.0.2.1:6443"
	for name, c := range map[string]struct{ cluster, user, file string }{
		"itself":            {"", "token: t", "kubeconfig"},
		"an authority":      {"certificate-authority: x", "token: t", "x"},
		"a certificate":     {"", "client-certificate: x, client-key: ok", "x"},
		"a key":             {"", "client-certificate: ok, client-key: x", "x"},
		"a token":           {"", "tokenFile: x", "x"},
		"a plugin":          {"", "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./x, interactiveMode: Never}", "x"},
		"a plugin's folder": {"", "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./bin/ok, interactiveMode: Never}", "bin"},
		"its interpreter":   {"", "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./script, interactiveMode: Never}", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "kubeconfig", config(here, c.cluster, c.user))
			dir := filepath.Dir(path)
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"x", "ok", "bin/ok"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "script"), []byte("#!"+dir+"/x\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := kubernetes.Load(path); err != nil {
				t.Fatalf("Load() = %v before anybody can change a file", err)
			}
			if err := os.Chmod(filepath.Join(dir, c.file), 0o777); err != nil {
				t.Fatal(err)
			}
			_, err := kubernetes.Load(path)
			if untrusted, ok := errors.AsType[*trust.Error](err); !ok || untrusted.Subject != filepath.Join(dir, c.file) || !strings.Contains(err.Error(), "check its content") {
				t.Errorf("Load() = %v, want that others can change %s, and what to do", err, c.file)
			}
		})
	}
}

func TestFilesInAKubeconfigAreRelativeToIt(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ca.crt", "c.crt", "c.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "kubeconfig")
	text := config("https://192.0.2.1:6443", "certificate-authority: ca.crt", "client-certificate: c.crt, client-key: c.key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := kubernetes.Load(path)
	if err != nil || config.CAFile != filepath.Join(dir, "ca.crt") || config.CertFile != filepath.Join(dir, "c.crt") || config.KeyFile != filepath.Join(dir, "c.key") {
		t.Errorf("Load() = %v, %v, want files in %s", config, err, dir)
	}
}

func TestWhereConnectionsGo(t *testing.T) {
	for _, c := range []struct{ name, server, cluster, want string }{
		{"an address", "https://192.0.2.1:6443", "", "192.0.2.1:6443"},
		{"an address of IPv6, and a path", "https://[2001:db8::1]:6443/k8s/clusters/c-1", "", "[2001:db8::1]:6443"},
		{"a name without a port", "https://api.example", "", "api.example:443"},
		{"over a proxy", "https://api.example:6443", "proxy-url: http://proxy.example:3128", "proxy.example:3128"},
		{"over a proxy without a port", "https://api.example:6443", "proxy-url: socks5://192.0.2.9", "192.0.2.9:1080"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := kubernetes.Server(write(t, "kubeconfig", config(c.server, c.cluster, "token: t")))
			if err != nil || got != c.want {
				t.Errorf("Server() = %q, %v, want %q", got, err, c.want)
			}
		})
	}
	if _, err := kubernetes.Server(filepath.Join(t.TempDir(), "kubeconfig")); err == nil {
		t.Error("Server() of a file that is not there = no error, want one")
	}
}
