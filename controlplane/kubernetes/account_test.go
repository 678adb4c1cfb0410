package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/controlplane/kubernetes"
)

func TestAPodIsNeededForItsServiceAccount(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"no pod":              {nil, "the environment has no KUBERNETES_SERVICE_HOST"},
		"half an address":     {map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "the environment has no KUBERNETES_SERVICE_PORT"},
		"a pod without files": {map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, "set automountServiceAccountToken: true"},
	} {
		t.Run(name, func(t *testing.T) {
			account, err := kubernetes.PodAccount(func(key string) string { return c.env[key] })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("PodAccount() = %v, want %q", err, c.want)
			}
			if len(c.env) == 2 && account.Server != "https://[fd00::1]:443" {
				t.Errorf("PodAccount() has the server %s", account.Server)
			}
		})
	}
}

func TestAServiceAccountThatCannotBeUsedIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no token":              {map[string]string{"ca.crt": "x"}, "token: no such file or directory: check the pod's volume"},
		"an empty token":        {map[string]string{"ca.crt": "x", "token": "\n"}, "token is empty"},
		"no authority":          {map[string]string{"token": "t"}, "ca.crt: no such file"},
		"an authority of noise": {map[string]string{"token": "t", "ca.crt": "x"}, "unable to load root certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range c.files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			client, err := kubernetes.New(kubernetes.Options{Account: &kubernetes.Account{Server: "https://127.0.0.1:1", Folder: folder}, Log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, err = client.Node(t.Context(), "n")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "service account "+folder) {
				t.Errorf("Node() = %v, want %q and the folder", err, c.want)
			}
		})
	}
}
