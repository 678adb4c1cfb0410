//go:build integration

package kubernetes_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/test/kube"
)

// TestAServiceAccountWhoseTokenIsReplaced has the files as kubelet writes them: in a folder that
// every user may write to, behind links that are replaced together.
func TestAServiceAccountWhoseTokenIsReplaced(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	kubectl(t, cluster, "create", "clusterrolebinding", "nodes", "--clusterrole=system:node-problem-detector", "--group=system:serviceaccounts")
	authority, err := os.ReadFile(cluster.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	replace := func(account string) {
		t.Helper()
		kubectl(t, cluster, "create", "serviceaccount", account)
		data := filepath.Join(folder, "..data-"+account)
		link := filepath.Join(folder, "..data")
		if err := errors.Join(
			os.Mkdir(data, 0o755),
			os.WriteFile(filepath.Join(data, "token"), []byte(kubectl(t, cluster, "create", "token", account)), 0o644),
			os.WriteFile(filepath.Join(data, "ca.crt"), authority, 0o644),
			os.Symlink(data, link+"_tmp"), os.Rename(link+"_tmp", link),
		); err != nil {
			t.Fatal(err)
		}
	}
	replace("first")
	for _, name := range []string{"token", "ca.crt"} {
		if err := os.Symlink("..data/"+name, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	fleet, err := kubernetes.NewFleet(kubernetes.Options{Account: &kubernetes.Account{Server: cluster.Server, Folder: folder}, Version: "1.2.3", Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	read := func() error {
		return within(t, patience, func(ctx context.Context) error {
			_, err := fleet.Get(ctx, store.Nodes, "n")
			return err
		})
	}
	if err := read(); !errors.Is(err, controlplane.ErrNotFound) {
		t.Fatalf("Get() = %v, want a server that answers", err)
	}
	kubectl(t, cluster, "delete", "serviceaccount", "first")
	for err = read(); errors.Is(err, controlplane.ErrNotFound); err = read() { // the server's cache still has the account
	}
	if !errors.Is(err, controlplane.ErrUnauthorized) || !strings.Contains(err.Error(), folder) {
		t.Errorf("Get() with a token that is not valid = %v, want the folder", err)
	}
	replace("second")
	_ = read() // makes the client drop the connection
	if err := read(); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Get() with a new token = %v, want a server that answers", err)
	}
	requests, err := cluster.Requests()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range requests {
		seen[r.User] = true
	}
	for _, name := range []string{"first", "second"} {
		if !seen["system:serviceaccount:default:"+name] {
			t.Errorf("no request of service account %s", name)
		}
	}
}
