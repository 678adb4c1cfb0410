//go:build integration

package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/test/etcd"
)

// TestAHostKeepsNobodyElseAlive has a host of the fleet that keeps each etcd lease alive whose ID it learns. etcd lets
// it do that with the rights of one host.
func TestAHostKeepsNobodyElseAlive(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{TLS: true})
	as := func(user string) string {
		files, err := f.Client(user, 48*time.Hour)
		check(t, err)
		return fmt.Sprintf("{type: etcd, etcd: {endpoints: [%s], tls: {ca: %s, certificate: %s, key: %s}}}\n", strings.Join(f.Endpoints(), ", "), f.CAFile, files.Certificate, files.Key)
	}
	agents := map[string]*agent{}
	names := []string{"n1", "n2", "mallory"}
	for _, name := range names {
		check(t, f.Grant(t.Context(), name, "", "readwrite", "/hostler/nodes/"+name, "/hostler/leases/"+name, "/hostler/events/"+name+"/"))
		f.ctl("role", "grant-permission", name, "read", "/hostler/settings/lease-duration")
	}
	check(t, f.Grant(t.Context(), "server", "", "readwrite", "/hostler/"))
	check(t, f.EnableAuth(t.Context()))
	for _, name := range names {
		agents[name] = startAgent(t, "controlPlane: "+as(name)+"node: {name: "+name+"}\nlease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n")
	}
	for _, name := range names {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	first := startServer(t, "store: "+as("server"))
	eventually(t, "the first server leads", first.leads)
	second := startServer(t, "store: "+as("server"))

	kept := f.keepsAlive("mallory")
	kept.await(1)
	first.end(syscall.SIGKILL)
	eventually(t, "the second server leads", second.leads)
	agents["n1"].kill()
	ended := kept.rounds.Load()
	f.becomes("n1", corev1.ConditionUnknown, unreachable)
	kept.await(ended + 2)
	if !f.alive("n1") {
		t.Error("the Lease of n1 has ended, want that the test keeps it alive")
	}
	for _, name := range []string{"n2", "mallory"} {
		f.becomes(name, corev1.ConditionTrue, "")
	}
}

// keeper keeps the etcd leases of others alive.
type keeper struct {
	t      *testing.T
	rounds atomic.Int64
}

// keepsAlive keeps all etcd leases alive with the credentials of a user, until the test ends. The IDs come from root:
// a host may learn them in another way.
func (f etcdFleet) keepsAlive(user string) *keeper {
	k := &keeper{t: f.t}
	files, err := f.Client(user, 48*time.Hour)
	check(f.t, err)
	pair, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	check(f.t, err)
	ca, err := os.ReadFile(f.CAFile)
	check(f.t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client, err := clientv3.New(clientv3.Config{Endpoints: f.Endpoints(), TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}, DialTimeout: 10 * time.Second})
	check(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	f.t.Cleanup(func() {
		cancel()
		<-ended
		_ = client.Close()
	})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for id := range strings.FieldsSeq(f.leaseIDs(ctx)) {
				var lease clientv3.LeaseID
				if _, err := fmt.Sscanf(id, "%x", &lease); err == nil {
					if _, err := client.KeepAliveOnce(ctx, lease); err != nil && ctx.Err() == nil {
						k.t.Logf("keep %s alive: %v", id, err)
					}
				}
			}
			k.rounds.Add(1)
		}
	}()
	return k
}

// leaseIDs returns the IDs of all etcd leases, and other text.
func (f etcdFleet) leaseIDs(ctx context.Context) string {
	out, _ := f.Ctl(ctx, "lease", "list")
	return out
}

// await waits for a number of rounds.
func (k *keeper) await(rounds int64) {
	k.t.Helper()
	eventually(k.t, fmt.Sprintf("%d rounds of keeping others alive", rounds), func() bool { return k.rounds.Load() >= rounds })
}
