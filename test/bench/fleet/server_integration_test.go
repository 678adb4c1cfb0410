//go:build integration

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

// BenchmarkServer measures `hostler server` on etcd: in an empty fleet, and with 1,000 and 10,000
// Nodes with 50 images each. This process simulates the hosts and renews their Leases.
func BenchmarkServer(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "hostler")
	check(b, lab.Build(b.Context(), "hostler.io/hostler", "0.0.0-bench", binary))
	fmt.Println("nodes  RSS MB  CPU s/min  all Unknown after half died  NoExecute taints in a minute  fail-over")
	for _, n := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { measureServer(b, binary, n) })
	}
}

func measureServer(b *testing.B, binary string, n int) {
	cluster := etcd.For(b, etcd.Options{Flags: []string{"--quota-backend-bytes=4294967296"}})
	store, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints()})
	check(b, err)
	defer store.Close()
	hosts := simulate(b, store, n)
	first := startReplica(b, binary, cluster.Endpoints())
	first.await("it leads and knows all Nodes", func(s answer.Status) bool {
		return s.Controllers[0].State == answer.Leading && s.Nodes == n && s.Controllers[0].Waits == ""
	})
	time.Sleep(10 * time.Second) // garbage of the start is collected by then
	before := first.cpu()
	time.Sleep(time.Minute)
	cpu, rss := first.cpu()-before, first.rss()
	unknown, taints, failover := "-", "-", "-"
	if n > 0 {
		died := time.Now()
		hosts.kill(n / 2)
		first.await("half of the fleet is Unknown", func(s answer.Status) bool { return s.NotReady >= n/2 && s.Controllers[0].Due == 0 })
		unknown = time.Since(died).Round(10 * time.Millisecond).String()
		time.Sleep(time.Minute)
		taints = fmt.Sprint(hosts.evicted())
	}
	second := startReplica(b, binary, cluster.Endpoints())
	second.await("it is standby", func(s answer.Status) bool { return s.Controllers[0].State == answer.Standby })
	check(b, first.cmd.Process.Kill())
	killed := time.Now()
	second.await("it leads", func(s answer.Status) bool { return s.Controllers[0].State == answer.Leading })
	failover = time.Since(killed).Round(100 * time.Millisecond).String()
	fmt.Printf("%5d  %6.1f  %9.2f  %27s  %28s  %s\n", n, float64(rss)/1e6, cpu, unknown, taints, failover)
}

// simulated are hosts whose Leases this process renews.
type simulated struct {
	b      *testing.B
	store  *clientv3.Client
	mu     sync.Mutex // guards leases
	leases map[clientv3.LeaseID]int
}

// perLease is how many hosts share an etcd lease.
const perLease = 50

// simulate stores Nodes and Leases in ten zones.
func simulate(b *testing.B, store *clientv3.Client, n int) *simulated {
	b.Helper()
	s := &simulated{b: b, store: store, leases: map[clientv3.LeaseID]int{}}
	ctx := b.Context()
	for from := 0; from < n; from += perLease {
		grant, err := store.Grant(ctx, 40)
		check(b, err)
		s.leases[grant.ID] = perLease
		for i := from; i < min(from+perLease, n); i++ {
			node, lease := hostObjects(i)
			_, err := store.Put(ctx, "/hostler/nodes/"+node.Name, encoded(b, node))
			check(b, err)
			_, err = store.Put(ctx, "/hostler/leases/"+node.Name, encoded(b, lease), clientv3.WithLease(grant.ID))
			check(b, err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			s.mu.Lock()
			ids := make([]clientv3.LeaseID, 0, len(s.leases))
			for id := range s.leases {
				ids = append(ids, id)
			}
			s.mu.Unlock()
			for _, id := range ids {
				_, _ = store.KeepAliveOnce(ctx, id) // an error means that it was revoked
			}
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				return
			}
		}
	}()
	b.Cleanup(func() {
		stop()
		<-ended
	})
	return s
}

// hostObjects returns the objects that an agent stores.
func hostObjects(i int) (*corev1.Node, *coordinationv1.Lease) {
	name, now, seconds := fmt.Sprintf("rack%02d-node%05d", i%40, i), metav1.Now(), int32(40)
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), CreationTimestamp: now,
			Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%10), corev1.LabelHostname: name},
		},
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "Ok", Message: "as it should be"})
	}
	for image := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("registry.example/team/service-%02d@sha256:%064d", image, image), fmt.Sprintf("registry.example/team/service-%02d:1.2.%d", image, image)},
			SizeBytes: 123456789,
		})
	}
	micro := metav1.NewMicroTime(now.Time)
	return node, &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &micro},
	}
}

func encoded(b *testing.B, o any) string {
	text, err := json.Marshal(o)
	check(b, err)
	return string(text)
}

// kill ends the Leases of that many hosts at once.
func (s *simulated) kill(n int) {
	s.b.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, hosts := range s.leases {
		if n <= 0 {
			return
		}
		_, err := s.store.Revoke(s.b.Context(), id)
		check(s.b, err)
		delete(s.leases, id)
		n -= hosts
	}
}

// evicted returns the number of Nodes with a NoExecute taint.
func (s *simulated) evicted() (n int) {
	s.b.Helper()
	for from := "/hostler/nodes/"; ; {
		page, err := s.store.Get(s.b.Context(), from, clientv3.WithRange("/hostler/nodes0"), clientv3.WithLimit(200))
		check(s.b, err)
		for _, kv := range page.Kvs {
			var node corev1.Node
			check(s.b, json.Unmarshal(kv.Value, &node))
			if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }) {
				n++
			}
		}
		if !page.More {
			return n
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// replica is one server.
type replica struct {
	b    *testing.B
	cmd  *exec.Cmd
	http http.Client
}

func startReplica(b *testing.B, binary string, endpoints []string) *replica {
	b.Helper()
	return startReplicaOf(b, binary, fmt.Sprintf("store: {type: etcd, etcd: {endpoints: [%s]}}", strings.Join(endpoints, ", ")))
}

func startReplicaOf(b *testing.B, binary, settings string) *replica {
	b.Helper()
	folder, err := os.MkdirTemp(lab.Dir, "server-")
	check(b, err)
	file, socket := filepath.Join(folder, "server.yaml"), filepath.Join(folder, "s")
	check(b, os.WriteFile(file, fmt.Appendf(nil, "api: {socket: %s}\nmetrics: {listen: \"\"}\n%s\n", socket, settings), 0o644))
	cmd := exec.Command(binary, "server", "--config", file)
	cmd.Stderr = os.Stderr
	if testing.Verbose() {
		cmd.Stderr = nil
	}
	check(b, cmd.Start())
	r := &replica{b: b, cmd: cmd}
	r.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		check(b, os.RemoveAll(folder))
	})
	return r
}

// await reads the status until wanted returns true.
func (r *replica) await(what string, wanted func(answer.Status) bool) {
	r.b.Helper()
	var s answer.Status
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		resp, err := r.http.Get("http://server/v1/fleet/status")
		if err != nil {
			continue
		}
		s = answer.Status{}
		err = json.NewDecoder(resp.Body).Decode(&s)
		_ = resp.Body.Close()
		if err == nil && wanted(s) {
			return
		}
	}
	r.b.Fatalf("waited in vain: %s; status is %+v", what, s)
}

func (r *replica) stat() procfs.ProcStat {
	r.b.Helper()
	p, err := procfs.NewProc(r.cmd.Process.Pid)
	check(r.b, err)
	stat, err := p.Stat()
	check(r.b, err)
	return stat
}

func (r *replica) cpu() float64 { return r.stat().CPUTime() }
func (r *replica) rss() int     { return r.stat().ResidentMemory() }
