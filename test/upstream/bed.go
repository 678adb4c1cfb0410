package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

const (
	// hollowNodes is the number of kubelets in a bed.
	hollowNodes = 3
	// serverUser is the user of hostler's server. Its rights are in rights.
	serverUser = "hostler-server"
	rights     = "packaging/kubernetes/server-rbac*.yaml"
	// accounts begins the user names of kube-controller-manager's controllers.
	accounts = "system:serviceaccount:kube-system:"
)

// group is a suite, and the controllers that it tests.
type group struct {
	specs    string   // the file in Kubernetes' sources
	hostlers string   // controllers that hostler's server runs
	off      string   // controllers that kube-controller-manager does not run at the same time
	users    []string // user names of these controllers in kube-controller-manager
	deletes  string   // resource of which the controllers must have deleted objects
}

var suites = map[string]group{
	"taints": {
		"test/e2e/node/taints.go", "node-lifecycle, eviction", "-node-lifecycle-controller,-taint-eviction-controller",
		[]string{accounts + "node-controller"},
		"pods",
	},
	"garbage": {
		"test/e2e/apimachinery/garbage_collector.go", "garbage-collector", "-garbage-collector-controller",
		[]string{accounts + "generic-garbage-collector", accounts + "metadata-informers"},
		"pods",
	},
}

// beds returns a bed with hostler's controllers, and one with kube-controller-manager's.
func (g group) beds(hostler string) []bed {
	return []bed{
		{group: g, name: "hostler server", binary: hostler, actors: []string{serverUser}, flags: []string{"--controllers=*," + g.off}},
		{group: g, name: "kube-controller-manager", actors: g.users},
	}
}

// daemons replaces the pods that the suite expects on each Node. Without them, the suite waits a
// minute before each spec. It finds them by parts of their names.
const daemons = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-proxy-fluentd-elasticsearch-node-problem-detector, namespace: kube-system}
spec:
  selector: {matchLabels: {app: daemons}}
  template:
    metadata: {labels: {app: daemons}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: c, image: "example.com/c:1"}]
`

// bed is a cluster with the controllers to be tested.
type bed struct {
	group
	name   string
	flags  []string // of kube-controller-manager
	binary string   // of hostler; empty if hostler's server does not run
	actors []string // user names of the controllers in this bed
}

// column has the results of the suite in a bed.
type column struct {
	bed      bed
	specs    []spec
	requests int // number of requests of the controllers
	deleted  int // number of objects that they have deleted
	took     time.Duration
	err      error
	logsKept string
}

// run starts the bed, and runs the suite in it.
func (b bed) run(ctx context.Context) (result column) {
	file := strings.TrimSuffix(filepath.Base(b.specs), ".go")
	result = column{bed: b, logsKept: filepath.Join(logs, file+"-"+strings.ReplaceAll(b.name, " ", "-"))}
	c, err := kube.Start(ctx, kube.Options{ControllerManager: true, ControllerManagerFlags: b.flags, Scheduler: true})
	if err != nil {
		result.err = err
		return result
	}
	var server *lab.Daemon
	defer func() {
		errs := []error{result.err, c.WriteLogs(result.logsKept)}
		if server != nil {
			errs = append(errs, server.Kill(), os.WriteFile(filepath.Join(result.logsKept, "hostler.log"), []byte(server.Log(100_000)), 0o644))
		}
		result.err = errors.Join(append(errs, c.Close())...)
	}()
	if b.binary != "" {
		if server, err = b.serve(ctx, c); err != nil {
			result.err = err
			return result
		}
	}
	for n := range hollowNodes {
		if _, err := c.StartHollowNode(ctx, fmt.Sprintf("hollow-%d", n+1)); err != nil {
			result.err = err
			return result
		}
	}
	if err := errors.Join(c.Apply(ctx, daemons), usable(ctx, c)); err != nil {
		result.err = err
		return result
	}
	result.specs, err = b.suite(ctx, c, result.logsKept)
	result.err = errors.Join(err, b.audit(c, &result))
	return result
}

// serve starts hostler's server, and waits until it leads all its controllers.
func (b bed) serve(ctx context.Context, c *kube.Cluster) (*lab.Daemon, error) {
	if err := c.ApplyFiles(ctx, rights); err != nil {
		return nil, err
	}
	kubeconfig, err := c.Kubeconfig(kube.User{Name: serverUser})
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(lab.Dir, "server-")
	if err != nil {
		return nil, err
	}
	socket, file := filepath.Join(folder, "server.sock"), filepath.Join(folder, "server.yaml")
	settings := fmt.Sprintf("api: {socket: %s}\nmetrics: {listen: \"\"}\nstore: {type: kubernetes, kubernetes: {kubeconfig: %s}}\ncontrollers: [%s]\n", socket, kubeconfig, b.hostlers)
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		return nil, err
	}
	d := lab.NewDaemon("hostler", lab.Tool{Path: b.binary}, folder, nil, "server", "--config", file)
	if err := d.Start(); err != nil {
		return nil, err
	}
	return d, d.Await(ctx, func(ctx context.Context) error {
		text, err := exec.CommandContext(ctx, b.binary, "fleet", "status", "--socket", socket, "-o", "json").Output()
		if err != nil {
			return err
		}
		var status answer.Status
		if err := json.Unmarshal(text, &status); err != nil {
			return err
		}
		for _, controller := range status.Controllers {
			if !slices.Contains([]string{answer.Leading, answer.Disabled, answer.NotApplicable}, controller.State) {
				return fmt.Errorf("controller %s is %s: %s", controller.Name, controller.State, controller.Message)
			}
		}
		return nil
	})
}

// usable waits until the Nodes are ready and have no taints, as the suite requires.
func usable(ctx context.Context, c *kube.Cluster) error {
	return c.APIServer.Await(ctx, func(ctx context.Context) error {
		text, err := c.Kubectl(ctx, "get", "nodes", "-o", "json")
		if err != nil {
			return err
		}
		var nodes corev1.NodeList
		if err := json.Unmarshal([]byte(text), &nodes); err != nil {
			return err
		}
		for _, node := range nodes.Items {
			ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			})
			if !ready || len(node.Spec.Taints) > 0 {
				return fmt.Errorf("node %q: ready %v, taints %v", node.Name, ready, node.Spec.Taints)
			}
		}
		return nil
	})
}

// audit counts the requests and deletions of the controllers. It also reports deletions by the
// controllers that they replace, and requests of hostler that were refused.
func (b bed) audit(c *kube.Cluster, result *column) error {
	requests, err := c.Requests()
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(append(slices.Clone(b.users), serverUser), func(user string) bool { return slices.Contains(b.actors, user) })
	for _, r := range requests {
		acts := slices.Contains(b.actors, r.User)
		deletes := r.Verb == "delete" && r.Resource == b.deletes && r.Code == 200
		switch {
		case r.User == serverUser && r.Code == 403:
			err = errors.Join(err, fmt.Errorf("hostler was refused: %v", r))
		case acts && deletes:
			result.deleted++
		case deletes && slices.Contains(others, r.User):
			err = errors.Join(err, fmt.Errorf("user %q has deleted an object: %v", r.User, r))
		}
		if acts && !serves(r) {
			result.requests++
		}
	}
	if result.deleted == 0 {
		err = errors.Join(err, fmt.Errorf("users %q have deleted no %s", b.actors, b.deletes))
	}
	return err
}

// serves reports whether a request is not one of a controller: an election, or the check whether
// the store answers.
func serves(r kube.Request) bool {
	return r.Resource == "leases" && r.Namespace == "hostler-system" || strings.HasPrefix(r.URI, "/api/v1/nodes?limit=1&") || strings.HasSuffix(r.URI, "/api/v1/nodes?limit=1")
}
