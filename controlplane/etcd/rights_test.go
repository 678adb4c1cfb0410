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
		`user "server"`, "`etcdctl role grant-permission ROLE --prefix readwrite /hostler/nodes/`",
		"ROLE --prefix read /hostler/leases/`", "ROLE --prefix readwrite /hostler/elections/`",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("error = %s, want it to mention %s", text, want)
		}
	}
}
