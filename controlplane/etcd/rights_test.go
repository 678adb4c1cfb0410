package etcd_test

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"hostler.io/hostler/controlplane/etcd"
)

func TestAServerThatLacksARightNamesAllThatItNeeds(t *testing.T) {
	f, err := etcd.NewFleet(etcd.Options{Endpoints: []string{"http://127.0.0.1:1"}, Prefix: "/hostler", Username: "server", PasswordFile: "/p"})
	if err != nil {
		t.Fatal(err)
	}
	text := etcd.FleetFault(f, rpctypes.ErrPermissionDenied).Error()
	for _, want := range []string{
		`user "server"`, "`etcdctl role add hostler-server`", "`etcdctl role grant-permission hostler-server --prefix readwrite /hostler/nodes/`",
		"hostler-server --prefix read /hostler/leases/`", "hostler-server --prefix readwrite /hostler/elections/`", "`etcdctl user grant-role server hostler-server`",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("error = %s, want it to mention %s", text, want)
		}
	}
}
