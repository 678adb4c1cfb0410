//go:build integration

package etcd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	bed "hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/page"
)

// member is the host in docs/reference/etcd.md.
const member = "rack1-node1"

// blocks returns the blocks of docs/reference/etcd.md in a language below a heading.
func blocks(t *testing.T, heading, language string) []string {
	t.Helper()
	return page.Blocks(t, "../../docs/reference/etcd.md", heading, language)
}

// types runs commands as the cluster's administrator, and returns their output.
func types(t *testing.T, c *bed.Cluster, commands string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail")
	cmd.Stdin = strings.NewReader(commands)
	cmd.Env = append(os.Environ(), append(c.Environment(), "PATH="+c.Tools()+":"+os.Getenv("PATH"))...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s\n%v\n%s", commands, err, out.String())
	}
	return out.String()
}

// join registers a host.
func join(t *testing.T, client *objects.Client, name string) {
	t.Helper()
	id := controlplane.Identity{MachineID: "of-" + name}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.NodeInfo.MachineID = id.MachineID
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "all is well"}}
	if _, err := client.Register(patient(t), node, controlplane.RegisterOptions{}); err != nil {
		t.Fatalf("Register() = %v, want no error", err)
	}
	lease, err := controlplane.NewLease(name, id, time.Hour)
	if err == nil {
		_, err = client.RenewLease(patient(t), controlplane.Renew(lease, time.Now()))
	}
	if err != nil {
		t.Fatalf("RenewLease() = %v, want no error", err)
	}
	event := &corev1.Event{InvolvedObject: controlplane.NodeReference(name), Type: "Normal", Reason: "Started", Count: 1}
	event.Namespace, event.Name = metav1.NamespaceDefault, name+".1"
	if err := client.PublishEvent(patient(t), event); err != nil {
		t.Fatalf("PublishEvent() = %v, want no error", err)
	}
}

// asks checks which Lease duration the store requests from all hosts.
func asks(t *testing.T, client *objects.Client, want string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan string), make(chan error, 1)
	go func() { ended <- client.WatchPace(ctx, seen) }()
	select {
	case got := <-seen:
		if got != want {
			t.Errorf("WatchPace() reported %q, want %q", got, want)
		}
		cancel()
		<-ended
	case err := <-ended:
		cancel()
		t.Errorf("WatchPace() with a host's rights = %v, want %q", err, want)
	}
}

func TestAFleetIsReadAsTheDocumentationSays(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	client := objects.New(at(t, c), objects.Options{})
	join(t, client, member)
	join(t, client, "rack1-node2")
	ctl(t, c, "del", "/hostler/leases/rack1-node2")

	commands := blocks(t, "Reading a fleet", "sh")[0]
	wants := map[string][]string{
		"nodes/ --keys-only":       {"/hostler/nodes/rack1-node1\n", "/hostler/nodes/rack1-node2\n"},
		"leases/ --keys-only":      {"/hostler/leases/rack1-node1\n"},
		"value-only /hostler/node": {`"kind":"Node"`, `"all is well"`},
		"/events/rack1-node1/":     {`"kind":"Event"`, `"Started"`},
	}
	if n := strings.Count(commands, "\n"); n != len(wants) {
		t.Errorf("docs/reference/etcd.md reads a fleet by %d commands, want %d:\n%s", n, len(wants), commands)
	}
	for line, want := range wants {
		for command := range strings.Lines(commands) {
			if !strings.Contains(command, line) {
				continue
			}
			printed := types(t, c, command)
			for _, part := range want {
				if !strings.Contains(printed, part) {
					t.Errorf("%sprints %q, want %q", command, printed, part)
				}
			}
			want = nil
		}
		if want != nil {
			t.Errorf("docs/reference/etcd.md has no command with %q", line)
		}
	}
	var node corev1.Node
	if err := json.Unmarshal([]byte(types(t, c, "etcdctl get --print-value-only /hostler/nodes/"+member)), &node); err != nil || node.Name != member || node.APIVersion != "v1" {
		t.Errorf("the value of %s = %v, %v, want a v1 Node", member, node, err)
	}

	printed := types(t, c, "go run ../../test/etcd/fleet")
	for _, want := range []string{"rack1-node1: alive, Ready is True: all is well\n", "rack1-node2: dead"} {
		if !strings.Contains(printed, want) {
			t.Errorf("test/etcd/fleet prints %q, want %q", printed, want)
		}
	}
}

func TestTheRightsInTheDocumentationAreEnoughAndNoMore(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{TLS: true})
	commands := blocks(t, "Rights", "sh")
	last := len(commands) - 1 // the command that allows the host to list the fleet
	for _, block := range commands[:last] {
		types(t, c, block)
	}
	if err := c.EnableAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	as := func(user string) *etcd.Store {
		t.Helper()
		files, err := c.Client(user, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return at(t, c, func(o *etcd.Options) { o.Certificate, o.Key, o.Insecure = files.Certificate, files.Key, false })
	}
	host := as(member)
	client := objects.New(host, objects.Options{})
	join(t, client, member)
	if _, err := client.Cordon(patient(t), member, true, false); err != nil {
		t.Errorf("Cordon() with a host's rights = %v, want no error", err)
	}
	asks(t, client, "")
	types(t, c, blocks(t, "Sizing", "sh")[0])
	asks(t, client, "2m")
	if _, err := host.Pods(member).Put(patient(t), "shop/web", []byte("{}"), controlplane.PodVersion{}); err != nil {
		t.Errorf("Put() of a pod's object with a host's rights = %v, want no error", err)
	}
	weaknesses(t, c, member)
	other := objects.Key{Kind: objects.Lease, Node: "rack1-node2"}
	if _, err := host.Put(patient(t), other, objects.Put{Value: []byte("{}"), TTL: time.Minute}); !errors.Is(err, controlplane.ErrForbidden) {
		t.Errorf("Put() of another host's lease = %v, want it forbidden", err)
	}
	if _, err := client.Nodes(patient(t)); !errors.Is(err, controlplane.ErrForbidden) {
		t.Errorf("Nodes() with a host's rights = %v, want it forbidden", err)
	}
	if err := client.Leave(patient(t), member, controlplane.Identity{MachineID: "of-" + member}); err != nil {
		t.Errorf("Leave() with a host's rights = %v, want no error", err)
	}
	join(t, client, member)
	reader := objects.New(as("reader"), objects.Options{})
	if nodes, err := reader.Nodes(patient(t)); err != nil || len(nodes) != 1 || nodes[0].Name != member {
		t.Errorf("Nodes() with a reader's rights = %v, %v, want the one host", nodes, err)
	}
	if _, err := reader.Cordon(patient(t), member, true, false); !errors.Is(err, controlplane.ErrForbidden) {
		t.Errorf("Cordon() with a reader's rights = %v, want it forbidden", err)
	}
	types(t, c, commands[last])
	if nodes, err := client.Nodes(patient(t)); err != nil || len(nodes) != 1 {
		t.Errorf("Nodes() of a host with the reader's role = %v, %v, want the one host", nodes, err)
	}
	for _, block := range page.Blocks(t, "../../docs/howto/lease-expired.md", "The host is lost for good", "sh") {
		if strings.HasPrefix(block, "hostler fleet delete ") { // TestAServerCollectsGarbageInEtcd tests it with a server
			block = "etcdctl del /hostler/nodes/NAME"
		}
		types(t, c, strings.ReplaceAll(block, "NAME", member))
	}
	if nodes, err := reader.Nodes(patient(t)); err != nil || len(nodes) != 0 {
		t.Errorf("Nodes() after a host was lost for good = %v, %v, want none", nodes, err)
	}
	lease := objects.Key{Kind: objects.Lease, Node: member}
	if _, err := as(member).Put(patient(t), lease, objects.Put{Value: []byte("{}"), TTL: time.Minute}); !errors.Is(err, controlplane.ErrForbidden) {
		t.Errorf("Put() of a host without its user = %v, want it forbidden", err)
	}
}

// clientOf returns a client of etcd with the credentials of a user, until the test ends.
func clientOf(t *testing.T, c *bed.Cluster, user string) (*clientv3.Client, bed.Credentials) {
	t.Helper()
	files, err := c.Client(user, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(c.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, files
}

// weaknesses checks that Diagnose finds the weaknesses of this version of etcd, by using them with the rights of a host.
func weaknesses(t *testing.T, c *bed.Cluster, host string) {
	t.Helper()
	client, files := clientOf(t, c, host)
	var want []string
	nested := clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("/hostler/nodes/another", "{}")}, nil)
	if _, err := client.Txn(t.Context()).Then(nested).Commit(); err == nil {
		want = append(want, "CVE-2026-33343")
		types(t, c, "etcdctl del /hostler/nodes/another")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if w := <-client.Watch(ctx, "/hostler/settings/lease-duration", clientv3.WithFromKey(), clientv3.WithCreatedNotify()); w.Err() == nil {
		want = append(want, "CVE-2026-73499")
	}
	o := etcd.Options{Endpoints: c.Endpoints(), Prefix: "/hostler", CA: c.CAFile, Certificate: files.Certificate, Key: files.Key}
	if d := etcd.Diagnose(t.Context(), o, host); d.RightsErr != nil || !slices.Equal(d.Weaknesses, want) {
		t.Errorf("Diagnose() = %q, %v, want the weaknesses %q", d.Weaknesses, d.RightsErr, want)
	}
}
