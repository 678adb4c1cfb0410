package etcd_test

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/page"
)

// certify returns the files of a client certificate of a user.
func certify(t *testing.T, user string) (certificate, key string) {
	t.Helper()
	authority, _, err := lab.NewAuthority("etcd")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Sign(lab.Leaf(user, x509.ExtKeyUsageClientAuth, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certificate, key = filepath.Join(folder, "host.crt"), filepath.Join(folder, "host.key")
	if err := errors.Join(os.WriteFile(certificate, pair.Certificate, 0o600), os.WriteFile(key, pair.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

func TestAServerThatLacksARightNamesThoseOfTheDocumentation(t *testing.T) {
	crt, key := certify(t, "server-1")
	f, err := etcd.NewFleet(etcd.Options{Endpoints: []string{"https://127.0.0.1:1"}, Prefix: "/hostler", Certificate: crt, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	_, commands, _ := strings.Cut(etcd.FleetFault(f, rpctypes.ErrPermissionDenied).Error(), `user "server-1" (ignore "already exists"): `)
	commands = strings.ReplaceAll(commands, "; ", "\n") + "\n"
	if blocks := page.Blocks(t, "../../docs/reference/etcd.md", "Rights", "sh"); !slices.Contains(blocks, commands) {
		t.Errorf("the error of a server names the commands\n%s\nnone of the blocks is that:\n%s", commands, strings.Join(blocks, "\n"))
	}
}

func TestACertificateOfAnotherHostIsDoubtedBeforeItGetsRights(t *testing.T) {
	crt, key := certify(t, "rack1-node2")
	const doubt = "etcd sees this host as user rack1-node2. If that is wrong, install the certificate of this host. If it is right: as etcd root, for user \"rack1-node2\""
	for node, doubted := range map[string]bool{"rack1-node1": true, "rack1-node2": false} {
		store := open(t, func(o *etcd.Options) { o.Node, o.Certificate, o.Key = node, crt, key })
		if text := store.Fault(rpctypes.ErrPermissionDenied).Error(); strings.Contains(text, ": "+doubt) != doubted || strings.Contains(text, "etcd sees") != doubted {
			t.Errorf("error of node %s = %s, want it to doubt the certificate: %t", node, text, doubted)
		}
	}
}
