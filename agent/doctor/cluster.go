package doctor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
)

// Cluster is a Kubernetes cluster that this host is a node of, as it answers now. It is a flat
// record with a field for each fact that a check uses.
type Cluster struct {
	// Unchecked reports that only the service can read the files.
	Unchecked  bool
	Node       string   // its name
	Kubeconfig string   // that leads there
	Server     string   // its URL; empty where that is not known
	Exposed    []string // files with secrets that others on this host can read
	// Certificate is the client certificate in use; nil where the credentials are
	// of another kind, or there is none yet.
	Certificate *Certificate
	// Waits is why there is no certificate, or no newer one although it is due.
	Waits error
	// Err is why the Node was not read; nil also where there is none.
	Err error
	// Writing is why the agent's last write failed; nil without an agent, too.
	Writing    error
	NotWritten string // why nothing is written although nothing failed; empty if it is
	// Skew is how far this host's clock is before the server's, which is known to a
	// second; zero where it did not answer.
	Skew         time.Duration
	Now          time.Time // by the server's clock; zero where it did not answer
	Found        bool      // the Node is there
	Mine         bool      // the Node is hostler's to write
	LeaseExpired string    // why the fleet takes this host for dead; empty if it does not
	Drift        []Fix
	Others       []Writer // of the Node's status, beside hostler
	Rights       Rights
}

// Fix is a fault that a command fixes.
type Fix struct{ Message, Command string }

// Writer is who else writes the Node's status.
type Writer struct {
	Name string // such as "kubelet"
	Last time.Time
}

// Rights are what the credentials allow of what hostler does.
type Rights struct {
	Checked bool
	Err     error    // why the server did not report them
	Lacks   []string // of what it does by itself, such as "patch nodes/status"
	Delete  bool     // its own Node, which no node may by itself
}

const (
	// clockTolerance is how far apart clocks may be: a certificate that has just been
	// made, and a Lease that is judged by another clock, bear as much.
	clockTolerance = 10 * time.Second
	// freshWrite is how lately somebody must have written to be writing still: a
	// kubelet does so every 5 minutes at the least.
	freshWrite = 11 * time.Minute
)

// clusterServer checks whether the API server answers, and as whom.
func clusterServer(f Facts) Check {
	c := f.Cluster
	switch {
	case c == nil:
		return Check{}
	case c.Unchecked:
		return unchecked(f)
	}
	who := c.Server
	if who == "" {
		who = "the API server named in " + c.Kubeconfig
	}
	switch err := c.Err; {
	case err == nil && c.Writing != nil:
		return fail(c.writingFix(f), "%s answers, but the agent's last write failed: %v", who, c.Writing)
	case err == nil && c.Found:
		return ok("%s answers, and node %s exists", who, c.Node)
	case err == nil && c.NotWritten != "":
		return warn("do nothing if this is intended", "%s answers, but node %s does not exist: %s", who, c.Node, c.NotWritten)
	case err == nil && f.Agent.Answers:
		return warn("see `hostler status`", "%s answers, but node %s does not exist yet", who, c.Node)
	case err == nil:
		return ok("%s answers; the agent will create node %s", who, c.Node)
	case c.Certificate == nil && c.Waits != nil:
		return Check{} // not asked without credentials: see below
	case c.Server == "": // the file has none
		return fail("correct the file; hostler reads it again automatically", "%v", err)
	case errors.Is(err, controlplane.ErrUntrusted):
		return fail(fmt.Sprintf("correct certificate-authority and server in %s (kubeadm: /etc/kubernetes/pki/ca.crt on a control-plane host), and check `date`", c.Kubeconfig),
			"the server at %s is not trusted, and nothing is sent to it: %v", who, err)
	case errors.Is(err, controlplane.ErrUnauthorized):
		return fail(c.credentialsFix(), "%s does not accept this host's credentials: %v", who, err)
	case errors.Is(err, controlplane.ErrForbidden):
		return fail(fmt.Sprintf("use credentials of user system:node:%s (node.name) in group system:nodes; the API server needs --authorization-mode=Node,RBAC", c.Node),
			"%s accepts the credentials, but they may not read node %s: %v", who, c.Node, err)
	default:
		return fail("check that the server runs and that this host reaches it: `curl -k "+c.Server+"/livez`", "%s does not answer: %v", who, err)
	}
}

// writingFix is what to do about a server that answers and refuses to be written to.
func (c *Cluster) writingFix(f Facts) string {
	err := c.Writing
	_, taken := errors.AsType[*controlplane.IdentityError](err)
	_, labels := errors.AsType[*controlplane.LabelsError](err)
	switch {
	case taken:
		return "give one of the two hosts another node.name, or set node.takeover: true to take over the Node"
	case labels:
		return "remove these labels from node.labels, or have an administrator set them: `kubectl label node " + c.Node + " KEY=VALUE`"
	case errors.Is(err, controlplane.ErrForbidden):
		return "see check cluster-rights"
	}
	return "hostler status; " + f.fixes().journal
}

// credentialsFix is what gives this host credentials that the server accepts.
func (c *Cluster) credentialsFix() string {
	if c.Certificate != nil && c.Certificate.Renewed {
		return "hostler requests a new certificate automatically with the bootstrap kubeconfig: see check cluster-credentials"
	}
	return fmt.Sprintf("put node credentials of this cluster into %s; hostler reads them automatically", c.Kubeconfig)
}

// clusterCredentials looks at the client certificate's life, and at who can read the
// secrets.
func clusterCredentials(f Facts) Check {
	c := f.Cluster
	if c == nil || c.Unchecked {
		return Check{}
	}
	var found faults
	for _, path := range c.Exposed {
		found.add(warn("chmod 600 "+path, "%s holds secrets of this node, and other users on this host can read it", path))
	}
	crt := c.Certificate
	if c.Waits != nil {
		found.add(c.waiting(f))
	}
	if crt != nil {
		found = append(found, c.life(f, c.now())...)
	}
	switch {
	case crt == nil:
		return found.or(ok("the credentials are not a certificate, so they have no known end"))
	case crt.Renewed:
		return found.or(crt.good(c.now(), ", and is renewed before"))
	}
	return found.or(crt.good(c.now(), ""))
}

// now is the time by which the server judges.
func (c *Cluster) now() time.Time {
	if c.Now.IsZero() {
		return time.Now()
	}
	return c.Now
}

// waiting says why there is no certificate yet.
func (c *Cluster) waiting(f Facts) Check {
	crt := c.Certificate
	judge, message := warn, "the certificate is not renewed"
	switch {
	case crt == nil:
		judge, message = fail, "this node has no certificate yet"
	case crt.Refused:
		judge, message = fail, "the certificate is not accepted, and no new one is issued"
	}
	if waiting, ok := errors.AsType[*certificate.WaitingError](c.Waits); ok {
		return judge(fmt.Sprintf("as an administrator: `kubectl certificate approve %s`", waiting.Request), "%s: request %s waits for its approval", message, waiting.Request)
	}
	if !f.Agent.Answers {
		return judge(start(f), "%s: %v", message, c.Waits)
	}
	hint := fmt.Sprintf("check that the token in %s has not expired (`kubeadm token create` makes a new one), and that its group may request certificates (/usr/share/doc/hostler/docs/start/kubernetes.md)", c.Kubeconfig)
	return judge(hint, "%s: %v", message, c.Waits)
}

// life judges how much of the certificate's life is left.
func (c *Cluster) life(f Facts, now time.Time) faults {
	crt := c.Certificate
	fix, soon := "put a new certificate into "+crt.Path+"; hostler reads it automatically", "hostler does not renew a certificate in a kubeconfig"
	if crt.Renewed {
		fix, soon = "see `hostler status` for the reason", "it should have been renewed"
		if !f.Agent.Answers {
			fix = start(f)
		}
	}
	if c.Waits != nil {
		fix = "" // said with what it waits for
		if crt.Renewed {
			soon = ""
		}
	}
	return crt.aging(now, fix, soon)
}

// clusterClock compares this host's clock with the server's.
func clusterClock(f Facts) Check {
	c := f.Cluster
	if c == nil || c.Now.IsZero() {
		return Check{}
	}
	apart, side := c.Skew, "ahead of"
	if apart < 0 {
		apart, side = -apart, "behind"
	}
	if apart > clockTolerance {
		return warn("set the wrong clock: `timedatectl`, `chronyc tracking`",
			"the clock of this host is %v %s the clock of the API server: certificates and leases depend on both", apart.Round(time.Second), side)
	}
	return ok("the clock of this host is within %v of the clock of the API server", clockTolerance)
}

// clusterNode looks at what others see of the Node.
func clusterNode(f Facts) Check {
	c := f.Cluster
	if c == nil || !c.Found && c.LeaseExpired == "" {
		return Check{}
	}
	var found faults
	if c.LeaseExpired != "" {
		fix := "see the checks of the cluster"
		if !f.Agent.Answers {
			fix = start(f)
		}
		found.add(fail(fix, "the lease has expired: %s", c.LeaseExpired))
	}
	for _, d := range c.Drift {
		found.add(warn("`"+d.Command+"`", "%s", d.Message))
	}
	for _, w := range c.Others {
		if c.Mine && w.Name == "kubelet" && c.now().Sub(w.Last) < freshWrite {
			found.add(fail("stop the kubelet that calls itself "+c.Node+", or give this host another node.name",
				"a kubelet also writes this Node, last at %s, but no kubelet runs on this host", date(w.Last)))
		}
	}
	switch {
	case c.NotWritten != "":
		return found.or(ok("this host does not write the Node: %s", c.NotWritten))
	case !c.Mine:
		return found.or(ok("the Node is not managed by hostler: its lease and status are not checked"))
	}
	return found.or(ok("the lease is renewed, the Node is as configured, and nothing else writes its status"))
}

// clusterRights compares what the credentials allow with what hostler does.
func clusterRights(f Facts) Check {
	c := f.Cluster
	if c == nil || !c.Rights.Checked {
		return Check{}
	}
	r := c.Rights
	switch {
	case r.Err != nil:
		return warn("do nothing if the other checks are ok", "the server does not report what this node may do: %v", r.Err)
	case len(r.Lacks) > 0:
		return fail(fmt.Sprintf("use credentials of user system:node:%s in group system:nodes, on a control plane with --authorization-mode=Node,RBAC", c.Node),
			"the credentials do not allow: %s", strings.Join(r.Lacks, ", "))
	}
	if r.Delete {
		return ok("the credentials allow everything, including `hostler leave`")
	}
	return ok("the credentials allow everything except `hostler leave`, which needs the right to delete the Node (/usr/share/doc/hostler/docs/reference/kubernetes.md)")
}
