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
	"hostler.io/hostler/test/lab"
)

// TestAHostHarmsNobodyElse has a host of the fleet that does all that etcd lets it do with the rights of one host. It
// keeps each etcd lease alive whose ID it learns, and fills its folder of pods with large objects that have many owners.
func TestAHostHarmsNobodyElse(t *testing.T) {
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
		check(t, f.Grant(t.Context(), name, "", "readwrite", "/hostler/nodes/"+name, "/hostler/leases/"+name, "/hostler/events/"+name+"/", "/hostler/objects/pods/"+name+"/"))
		f.ctl("role", "grant-permission", name, "read", "/hostler/settings/lease-duration")
	}
	check(t, f.Grant(t.Context(), "server", "", "readwrite", "/hostler/"))
	check(t, f.EnableAuth(t.Context()))
	for _, name := range names {
		agents[name] = startAgent(t, "controlPlane: "+as(name)+"node: {name: "+name+"}\nlease: {duration: 30s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n")
	}
	for _, name := range names {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	first := startServer(t, "store: "+as("server"))
	eventually(t, "the first server leads", first.leads)
	second := startServer(t, "store: "+as("server"))

	f.floods("mallory")
	kept := f.keepsAlive("root")
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
	mentions(t, "hostler fleet status", onOneLine(second.prints("status")), "pods/mallory", "the rest is left out")
	if most := highestMemory(t, second.cmd.Process.Pid); most > 400<<20 {
		t.Errorf("the server has used %d MiB of memory, want no more than for two objects of a host", most>>20)
	}
}

// highestMemory is how much memory a process has used at most, in bytes.
func highestMemory(t *testing.T, pid int) (most int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(after, &most); err != nil {
		t.Fatal(err)
	}
	return most << 10
}

// floods fills the folder of a host with its own credentials.
func (f etcdFleet) floods(host string) {
	f.t.Helper()
	client := f.client(host)
	owner := `{"apiVersion":"v1","kind":"Node","name":"n1","uid":"00000000-0000-4000-8000-000000000000","blockOwnerDeletion":true},`
	owners := strings.Repeat(owner, (1<<20)/len(owner))
	objects := 60
	if lab.Long() {
		objects = 300
	}
	for i := range objects {
		value := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"x","name":"p%d","uid":"u%d","ownerReferences":[%s]}}`, i, i, strings.TrimSuffix(owners, ","))
		switch i % 3 {
		case 0: // small, but large in memory
			value = fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"x","name":"p%d","uid":"u%d"},"spec":{"nodeName":%q,"containers":[%s{}]}}`, i, i, host, strings.Repeat("{},", 250_000))
		case 1: // large, but with one owner
			value = fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"x","name":"p%d","uid":"u%d","annotations":{"a":%q}}}`, i, i, owners)
		}
		_, err := client.Put(f.t.Context(), fmt.Sprintf("/hostler/objects/pods/%s/x/p%d", host, i), value)
		check(f.t, err)
	}
}

// client returns a client of etcd with the credentials of a user, until the test ends.
func (f etcdFleet) client(user string) *clientv3.Client {
	f.t.Helper()
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
	f.t.Cleanup(func() { _ = client.Close() })
	return client
}

// keeper keeps the etcd leases of others alive.
type keeper struct {
	t      *testing.T
	rounds atomic.Int64
}

// keepsAlive keeps all etcd leases alive with the credentials of a user, until the test ends. Before etcd 3.6.14, each
// host could do that.
func (f etcdFleet) keepsAlive(user string) *keeper {
	k, client := &keeper{t: f.t}, f.client(user)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	f.t.Cleanup(func() {
		cancel()
		<-ended
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
