//go:build integration

package kubernetes_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/test/kube"
)

// within limits one attempt on a server that may not answer.
func within(t *testing.T, d time.Duration, call func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return call(ctx)
}

// patient returns a context with a deadline, which replaces the client's own of some seconds.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// served repeats a call while the server does not answer within the bound of the call.
func served(t *testing.T, call func() error) error {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		if err := call(); !errors.Is(err, controlplane.ErrUnavailable) || time.Now().After(end) {
			return err
		}
	}
}

func mustRegister(t *testing.T, client *kubernetes.Client, node *corev1.Node, o controlplane.RegisterOptions) *corev1.Node {
	t.Helper()
	stored, err := client.Register(patient(t), node, o)
	if err != nil {
		t.Fatalf("Register() = %v, want no error", err)
	}
	return stored
}

func TestNothingIsReadWhileNobodyElseWrites(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	client := asNode(t, cluster, "n")
	mustRegister(t, client, newNode("n"), controlplane.RegisterOptions{})
	lease := newLease(t, "n")
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "n.1"}, InvolvedObject: controlplane.NodeReference("n"),
		Type: corev1.EventTypeNormal, Reason: "Test", Message: "again", LastTimestamp: metav1.Now(),
	}
	for i := range 3 {
		node := newNode("n")
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Unix(int64(i), 0)}}
		if _, err := client.UpdateStatus(patient(t), node); err != nil {
			t.Fatal(err)
		}
		stored, err := client.RenewLease(patient(t), controlplane.Renew(lease, time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		lease = stored
		event.Count = int32(i) + 1
		if err := client.PublishEvent(patient(t), event); err != nil {
			t.Fatal(err)
		}
	}
	got := asked(t, cluster, "n")
	slices.Sort(got)
	want := []string{
		"create events default/ 201", "create leases kube-node-lease/ 201", "create nodes  201",
		"patch events default/n.1 200", "patch events default/n.1 200",
		"patch nodes/status n 200", "patch nodes/status n 200", "patch nodes/status n 200",
		"update leases kube-node-lease/n 200", "update leases kube-node-lease/n 200",
	}
	for i, request := range got { // only some audit versions name the object of a create
		if strings.HasPrefix(request, "create ") {
			got[i] = strings.NewReplacer("n.1 ", " ", "/n ", "/ ", "nodes n ", "nodes  ").Replace(request)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("requests = %q, want %q", got, want)
	}
	if text, err := cluster.Kubectl(t.Context(), "get", "event", "n.1", "-o", "jsonpath={.count}"); err != nil || text != "3" {
		t.Errorf("count of the event = %q, %v, want 3", text, err)
	}

	if _, err := cluster.Kubectl(t.Context(), "delete", "event", "n.1"); err != nil {
		t.Fatal(err)
	}
	event.Count = 4
	if err := client.PublishEvent(patient(t), event); err != nil {
		t.Errorf("PublishEvent() of a repetition whose first is forgotten = %v, want it created", err)
	}
}

func TestWhatOthersWroteIsReadOnceAtMost(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	client := asNode(t, cluster, "n")
	mustRegister(t, client, newNode("n"), controlplane.RegisterOptions{})
	annotate := func(value string) {
		t.Helper()
		if _, err := cluster.Kubectl(t.Context(), "annotate", "--overwrite", "node", "n", "example.com/seen="+value); err != nil {
			t.Fatal(err)
		}
	}
	heartbeats := int64(0)
	writes := func(after string, want ...string) {
		t.Helper()
		before := len(asked(t, cluster, "n"))
		node := newNode("n")
		heartbeats++
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Unix(heartbeats, 0)}}
		if _, err := client.UpdateStatus(patient(t), node); err != nil {
			t.Fatal(err)
		}
		if got := asked(t, cluster, "n")[before:]; !slices.Equal(got, want) {
			t.Errorf("requests of UpdateStatus() %s = %q, want %q", after, got, want)
		}
	}
	annotate("by nobody")
	writes("after somebody else's write", "patch nodes/status n 409", "get nodes n 200", "patch nodes/status n 200")

	annotate("by a read")
	if _, err := client.Node(patient(t), "n"); err != nil {
		t.Fatal(err)
	}
	writes("after a read of it", "patch nodes/status n 200")

	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan *corev1.Node), make(chan error, 1)
	go func() { ended <- client.WatchNode(ctx, "n", seen) }()
	<-seen // the initial state
	annotate("by a watch")
	for node := range seen {
		if node.Annotations["example.com/seen"] == "by a watch" {
			break
		}
	}
	cancel()
	<-ended
	writes("after a watch has reported it", "patch nodes/status n 200")
}

// asked returns the requests of the node.
func asked(t *testing.T, cluster *kube.Cluster, name string) []string {
	t.Helper()
	requests, err := cluster.Requests()
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, r := range requests {
		if r.User == "system:node:"+name {
			own = append(own, r.String())
			if !strings.HasPrefix(r.UserAgent, "hostler/1.2.3 (linux/") {
				t.Errorf("%v came from %q, want hostler", r, r.UserAgent)
			}
		}
	}
	return own
}

func TestOthersWriteToTheNodeToo(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	client := asNode(t, cluster, "n")
	node := newNode("n")
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"}, {Type: corev1.NodeHostName, Address: "n"}}
	node.Status.Conditions = conditions("Ready", "Backup")
	mustRegister(t, client, node, controlplane.RegisterOptions{})
	if _, err := client.UpdateStatus(patient(t), node); err != nil {
		t.Fatal(err)
	}
	patch := `{"status":{"capacity":{"example.com/dongle":"3"},"conditions":[{"type":"KernelDeadlock","status":"False","reason":"NoDeadlock"}]}}`
	if _, err := cluster.Kubectl(t.Context(), "patch", "node", "n", "--subresource=status", "--type=strategic", "-p", patch); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = conditions("Ready")
	node.Status.Addresses = node.Status.Addresses[1:]
	got, err := client.UpdateStatus(patient(t), node)
	if err != nil {
		t.Fatalf("UpdateStatus() after somebody else's = %v, want no error", err)
	}
	if !equality.Semantic.DeepEqual(got.Status.Addresses, node.Status.Addresses) {
		t.Errorf("addresses = %v, want %v", got.Status.Addresses, node.Status.Addresses)
	}
	var types []string
	for _, condition := range got.Status.Conditions {
		types = append(types, string(condition.Type))
	}
	slices.Sort(types)
	if quantity := got.Status.Capacity["example.com/dongle"]; !slices.Equal(types, []string{"KernelDeadlock", "Ready"}) || quantity.String() != "3" {
		t.Errorf("conditions = %v, capacity = %v, want theirs and ours, and no Backup", types, got.Status.Capacity)
	}
}

func TestANodeOfAnotherMachineNow(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	ours, theirs := asNode(t, cluster, "n"), asNode(t, cluster, "n")
	mustRegister(t, ours, newNode("n"), controlplane.RegisterOptions{})
	other := newNode("n")
	other.Status.NodeInfo.MachineID = "other"
	mustRegister(t, theirs, other, controlplane.RegisterOptions{Takeover: true})
	_, err := ours.UpdateStatus(patient(t), newNode("n"))
	if _, ok := errors.AsType[*controlplane.IdentityError](err); !ok {
		t.Errorf("UpdateStatus() of a node that another machine took over = %v, want an IdentityError", err)
	}
	if node, err := ours.Node(patient(t), "n"); err != nil || node.Status.NodeInfo.MachineID != other.Status.NodeInfo.MachineID {
		t.Errorf("Node() = %v, %v, want the other machine's status", node, err)
	}

	mustRegister(t, ours, newNode("n"), controlplane.RegisterOptions{Takeover: true})
	if _, err := cluster.Kubectl(t.Context(), "delete", "node", "n"); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.UpdateStatus(patient(t), newNode("n")); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("UpdateStatus() of a node that was deleted = %v, want it not found", err)
	}
	mustRegister(t, ours, newNode("n"), controlplane.RegisterOptions{})
	if _, err := cluster.Kubectl(t.Context(), "delete", "node", "n"); err != nil {
		t.Fatal(err)
	}
	mustRegister(t, theirs, newNode("n"), controlplane.RegisterOptions{})
	if _, err := ours.UpdateStatus(patient(t), newNode("n")); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("UpdateStatus() of a node that was deleted and created again = %v, want it not found", err)
	}
	if _, err := asNode(t, cluster, "gone").Register(patient(t), newNode("gone"), controlplane.RegisterOptions{AdoptOnly: true}); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Register() of a node that may only be adopted = %v, want it not found", err)
	}
}

func TestALeaseThatIsDeletedIsNotCreatedByARenewal(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	client := asNode(t, cluster, "n")
	first, err := client.RenewLease(patient(t), newLease(t, "n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Kubectl(t.Context(), "delete", "lease", "n", "-n", controlplane.LeaseNamespace); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RenewLease(patient(t), controlplane.Renew(first, time.Now())); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("RenewLease() of a lease that was deleted = %v, want %v", err, controlplane.ErrConflict)
	}
	if next, err := client.RenewLease(patient(t), newLease(t, "n")); err != nil || next.UID == first.UID {
		t.Errorf("RenewLease() of a new lease = %v, %v, want it created", next, err)
	}
}

func TestAControlPlaneThatComesAndGoes(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{Apart: true})
	client := asNode(t, cluster, "n")
	mustRegister(t, client, newNode("n"), controlplane.RegisterOptions{})
	lease := newLease(t, "n")
	renew := func(ctx context.Context) error {
		stored, err := client.RenewLease(ctx, controlplane.Renew(lease, time.Now()))
		if err == nil {
			lease = stored
		}
		return err
	}
	report := func(ctx context.Context) error {
		_, err := client.UpdateStatus(ctx, newNode("n"))
		return err
	}
	calls := map[string]func(context.Context) error{"RenewLease()": renew, "UpdateStatus()": report}
	well := func(when string) {
		t.Helper()
		for call, run := range calls {
			// A lost answer causes one conflict.
			err := within(t, patience, run)
			if errors.Is(err, controlplane.ErrConflict) {
				stored, readErr := client.Lease(patient(t), "n")
				if readErr != nil {
					t.Fatal(readErr)
				}
				lease = stored
				err = within(t, patience, run)
			}
			if err != nil {
				t.Errorf("%s %s = %v, want no error", call, when, err)
			}
		}
	}
	well("at first")
	for _, trouble := range []struct {
		name       string
		begin, end func() error
		limit      time.Duration
		want       error
	}{
		{"once the network is restored", cluster.Cut, cluster.Restore, time.Second, context.DeadlineExceeded},
		{"once etcd continues", cluster.Etcd.Pause, cluster.Etcd.Continue, time.Second, context.DeadlineExceeded},
		{"once the server is back", cluster.APIServer.Kill, func() error { return errors.Join(cluster.APIServer.Start(), cluster.Ready(t.Context())) }, patience, controlplane.ErrUnavailable},
	} {
		if err := trouble.begin(); err != nil {
			t.Fatal(err)
		}
		for call, run := range calls {
			start := time.Now()
			err := within(t, trouble.limit, run)
			if !errors.Is(err, trouble.want) {
				t.Errorf("%s not yet %s = %v, want %v", call, trouble.name, err, trouble.want)
			}
			if took := time.Since(start); took > patience {
				t.Errorf("%s not yet %s took %v, want it to end with its context", call, trouble.name, took)
			}
		}
		if err := errors.Join(trouble.end(), cluster.Ready(t.Context())); err != nil {
			t.Fatal(err)
		}
		well(trouble.name)
	}
}

// Requests that such a server does not support are not repeated.
func TestANodeThatIsOlderThanTheServerIsReadOnce(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{Apart: true})
	client := asNode(t, cluster, "n")
	mustRegister(t, client, newNode("n"), controlplane.RegisterOptions{})
	if _, err := cluster.Kubectl(t.Context(), "create", "namespace", "later"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cluster.APIServer.Kill(), cluster.APIServer.Start(), cluster.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	before := len(asked(t, cluster, "n"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen, ended := make(chan *corev1.Node), make(chan error, 1)
	go func() { ended <- client.WatchNode(ctx, "n", seen) }()
	<-seen // the initial state
	if _, err := cluster.Kubectl(t.Context(), "annotate", "node", "n", "example.com/seen=yes"); err != nil {
		t.Fatal(err)
	}
	for reported := false; !reported; {
		select {
		case node := <-seen:
			reported = node != nil && node.Annotations["example.com/seen"] == "yes"
		case err := <-ended:
			t.Fatalf("WatchNode() = %v, want it to report the change", err)
		}
	}
	reads := 0
	for _, request := range asked(t, cluster, "n")[before:] {
		if strings.HasPrefix(request, "get nodes n ") {
			reads++
		}
	}
	if reads != 1 {
		t.Errorf("the node was read %d times, want once", reads)
	}
}

func TestACertificateThatIsReplaced(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	dir := t.TempDir()
	issue := func(life time.Duration) {
		t.Helper()
		user := kube.Node("n")
		user.Lifetime = life
		certificate, key, err := cluster.Certificate(user)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"n.crt": certificate, "n.key": key} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := filepath.Join(dir, "kubeconfig")
	text := config(cluster.Server, "certificate-authority: "+cluster.CAFile, "client-certificate: n.crt, client-key: n.key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var client *kubernetes.Client
	err := controlplane.ErrUnavailable
	// On a busy machine, the certificate may be over before it is used.
	for life := 3 * time.Second; errors.Is(err, controlplane.ErrUnavailable) && life < 2*patience; life *= 2 {
		issue(life)
		client = open(t, path)
		_, err = client.Register(patient(t), newNode("n"), controlplane.RegisterOptions{})
	}
	if err != nil {
		t.Fatalf("Register() = %v, want no error", err)
	}
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		err = within(t, patience, func(ctx context.Context) error {
			_, err := client.Node(ctx, "n")
			return err
		})
	}
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), path) {
		t.Errorf("Node() with a certificate that is over = %v, want an unavailable control plane and the kubeconfig's name", err)
	}
	issue(time.Hour)
	_, _ = client.Node(patient(t), "n") // makes it read the files again
	if _, err := client.Node(patient(t), "n"); err != nil {
		t.Errorf("Node() with a new certificate = %v, want no error", err)
	}
}

func TestAddressesOfACloudProviderStay(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	client := asNode(t, cluster, "n")
	node := newNode("n")
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n"}}
	mustRegister(t, client, node, controlplane.RegisterOptions{})
	theirs, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": addresses("203.0.113.1")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Kubectl(t.Context(), "patch", "node", "n", "--subresource=status", "--type=strategic", "-p", string(theirs)); err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = nil
	got, err := client.UpdateStatus(patient(t), node)
	if err != nil || len(got.Status.Addresses) != 2 {
		t.Errorf("UpdateStatus() = %v, %v, want the provider's address beside the name", got.Status.Addresses, err)
	}
}

// A client that may write one Node's status must not hide all others.
func TestANodeThatIsTooLargeIsLeftOut(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	for _, name := range []string{"a", "b", "c"} {
		node := asNode(t, cluster, name)
		mustRegister(t, node, newNode(name), controlplane.RegisterOptions{})
		if _, err := node.RenewLease(patient(t), newLease(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	huge := cluster.KubectlCommand(t.Context(), "replace", "--raw", "/api/v1/nodes/b/status", "-f", "-")
	huge.Stdin = strings.NewReader(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"b"},"status":{"images":[{}` + strings.Repeat(",{}", 340_000) + `]}}`)
	if text, err := huge.CombinedOutput(); err != nil {
		t.Fatalf("write 340,000 images: %v: %.300s", err, text)
	}
	var reported []string
	err := served(t, func() error {
		reported = nil
		return open(t, cluster.AdminKubeconfig()).Fleet(t.Context(), func(node *corev1.Node, lease *coordinationv1.Lease) error {
			reported = append(reported, node.Name)
			if lease == nil || lease.Name != node.Name {
				t.Errorf("Fleet() returns %s with the Lease %v, want its own", node.Name, lease)
			}
			return nil
		})
	})
	if !errors.Is(err, controlplane.ErrIncomplete) || !strings.Contains(err.Error(), `"b" has more than`) {
		t.Errorf("Fleet() = %v, want it incomplete, and b named", err)
	}
	if want := []string{"a", "c"}; !slices.Equal(reported, want) {
		t.Errorf("Fleet() returns %q, want %q", reported, want)
	}
}
