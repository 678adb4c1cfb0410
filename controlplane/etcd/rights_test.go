package etcd_test

import (
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/test/lab"
)

func TestAServerThatLacksARightNamesAllThatItNeeds(t *testing.T) {
	f, err := etcd.NewFleet(etcd.Options{Endpoints: []string{"http://127.0.0.1:1"}, Prefix: "/hostler", Username: "server", PasswordFile: "/p"})
	if err != nil {
		t.Fatal(err)
	}
	text := etcd.FleetFault(f, rpctypes.ErrPermissionDenied).Error()
	for _, want := range []string{
		`user "server"`, ": etcdctl role add hostler-server; etcdctl role grant-permission hostler-server --prefix readwrite /hostler/nodes/;",
		"hostler-server --prefix read /hostler/leases/;", "hostler-server --prefix readwrite /hostler/elections/;", "; etcdctl user grant-role server hostler-server",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("error = %s, want it to mention %s", text, want)
		}
	}
}

func TestACertificateOfAnotherHostIsDoubtedBeforeItGetsRights(t *testing.T) {
	authority, _, err := lab.NewAuthority("etcd")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Sign(lab.Leaf("rack1-node2", x509.ExtKeyUsageClientAuth, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	crt, key := filepath.Join(folder, "host.crt"), filepath.Join(folder, "host.key")
	if err := errors.Join(os.WriteFile(crt, pair.Certificate, 0o600), os.WriteFile(key, pair.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	const doubt = "etcd sees this host as user rack1-node2. If that is wrong, install the certificate of this host. If it is right: as etcd root, for user \"rack1-node2\""
	for node, doubted := range map[string]bool{"rack1-node1": true, "rack1-node2": false} {
		store := open(t, func(o *etcd.Options) { o.Node, o.Certificate, o.Key = node, crt, key })
		if text := store.Fault(rpctypes.ErrPermissionDenied).Error(); strings.Contains(text, ": "+doubt) != doubted || strings.Contains(text, "etcd sees") != doubted {
			t.Errorf("error of node %s = %s, want it to doubt the certificate: %t", node, text, doubted)
		}
	}
}
