package doctor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
)

// Cluster is the Kubernetes cluster of which this host is a node, as its API server answers now. It is
// a flat record with a field for each fact that a check uses.
type Cluster struct {
	// Unchecked reports that only the service can read the files.
	Unchecked  bool
	Node       string   // name of the Node
	Kubeconfig string   // path of the kubeconfig
	Server     string   // URL of the API server; empty if it is not known
	Exposed    []string // files with secrets that other users on this host can read
	// Certificate is the client certificate in use. It is nil if there is none yet, or if the
	// credentials are of another kind.
	Certificate *Certificate
	// CertificateErr is why there is no certificate, or why the renewal is late.
	CertificateErr error
	// Err is why the Node was not read; nil also if the Node does not exist.
	Err error
	// WriteErr is the error of the agent's last write; nil also without an agent.
	WriteErr   error
	NotWritten string // why the agent does not write, although nothing failed; empty if it writes
	// Skew is how far this host's clock is ahead of the server's, to the second; zero if the server
	// did not answer.
	Skew         time.Duration
	Now          time.Time // time of the server's clock; zero if the server did not answer
	Found        bool      // the Node exists
	Managed      bool      // hostler manages the Node
	LeaseExpired string    // why the Lease counts as expired; empty if it does not
	Drift        []Fix
	Others       []Writer // who writes the Node's status besides hostler
	Rights       Rights
}

// Fix is a fault and the command that fixes it.
type Fix struct{ Message, Command string }

// Writer is another client that writes the Node's status.
type Writer struct {
	Name string // such as "kubelet"
	Last time.Time
}

// Rights says which of the requests that hostler makes the credentials allow.
type Rights struct {
	Checked bool
	Err     error    // why the server did not report them
	Missing []string // missing rights that hostler needs in normal operation, such as "patch nodes/status"
	Delete  bool     // it may delete its own Node; by default, Kubernetes allows that to no node
}

const (
	// clockTolerance is the greatest clock difference that is no fault: new certificates, and Leases
	// that another clock judges, tolerate that much.
	clockTolerance = 10 * time.Second
	// freshWrite is the greatest age of the last write of a client that still runs: a kubelet writes
	// at least every 5 minutes.
	freshWrite = 11 * time.Minute
)

// clusterServer checks whether the API server answers, and whether it accepts the credentials.
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
	case err == nil && c.WriteErr != nil:
		return fail(c.writingFix(f), "%s answers, but the agent's last write failed: %v", who, c.WriteErr)
	case err == nil && c.Found:
		return ok("%s answers, and node %s exists", who, c.Node)
	case err == nil && c.NotWritten != "":
		return warn("do nothing if this is intended", "%s answers, but node %s does not exist: %s", who, c.Node, c.NotWritten)
	case err == nil && f.Agent.Answers:
		return warn("see `hostler status`", "%s answers, but node %s does not exist yet", who, c.Node)
	case err == nil:
		return ok("%s answers; the agent will create node %s", who, c.Node)
	case c.Certificate == nil && c.CertificateErr != nil:
		return Check{} // without credentials, there was no request: see clusterCredentials
	case c.Server == "": // the kubeconfig names no server
		return fail("correct the file; hostler reads it again automatically", "%v", err).noAccess()
	case errors.Is(err, controlplane.ErrUntrusted):
		return fail(fmt.Sprintf("correct certificate-authority and server in %s (kubeadm: /etc/kubernetes/pki/ca.crt on a control-plane host), and check `date`", c.Kubeconfig),
			"the server at %s is not trusted, and nothing is sent to it: %v", who, err)
	case errors.Is(err, controlplane.ErrUnauthorized):
		return fail(c.credentialsFix(), "%s does not accept this host's credentials: %v", who, err)
	case errors.Is(err, controlplane.ErrForbidden):
		return fail(fmt.Sprintf("use credentials of user system:node:%s (node.name) in group system:nodes; the API server needs --authorization-mode=Node,RBAC", c.Node),
			"%s accepts the credentials, but they may not read node %s: %v", who, c.Node, err)
	default:
		return fail("check that the server runs and that this host reaches it: `curl -k "+c.Server+"/livez`", "%s does not answer: %v", who, err).noAccess()
	}
}

// writingFix is the hint for a server that answers but rejects writes.
func (c *Cluster) writingFix(f Facts) string {
	err := c.WriteErr
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

// credentialsFix is the hint for credentials that the server does not accept.
func (c *Cluster) credentialsFix() string {
	if c.Certificate != nil && c.Certificate.Renewed {
		return "hostler requests a new certificate automatically with the bootstrap kubeconfig: see check cluster-credentials"
	}
	return fmt.Sprintf("put node credentials of this cluster into %s; hostler reads them automatically", c.Kubeconfig)
}

// clusterCredentials checks the lifetime of the client certificate, and who can read the secrets.
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
	if c.CertificateErr != nil {
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

// now is the time of the server's clock, or of this host's if the server's is not known.
func (c *Cluster) now() time.Time {
	if c.Now.IsZero() {
		return time.Now()
	}
	return c.Now
}

// waiting is the fault of a certificate that is missing, or whose renewal is late.
func (c *Cluster) waiting(f Facts) Check {
	crt := c.Certificate
	judge, message := warn, "the certificate is not renewed"
	switch {
	case crt == nil:
		judge, message = fail, "this node has no certificate yet"
	case crt.Refused:
		judge, message = fail, "the certificate is not accepted, and no new one is issued"
	}
	if waiting, ok := errors.AsType[*certificate.WaitingError](c.CertificateErr); ok {
		return judge(fmt.Sprintf("as an administrator: `kubectl certificate approve %s`", waiting.Request), "%s: request %s waits for its approval", message, waiting.Request)
	}
	if !f.Agent.Answers {
		return judge(start(f), "%s: %v", message, c.CertificateErr)
	}
	hint := fmt.Sprintf("check that the token in %s has not expired (`kubeadm token create` makes a new one), and that its group may request certificates (/usr/share/doc/hostler/docs/start/kubernetes.md)", c.Kubeconfig)
	return judge(hint, "%s: %v", message, c.CertificateErr)
}

// life judges the remaining lifetime of the certificate.
func (c *Cluster) life(f Facts, now time.Time) faults {
	crt := c.Certificate
	fix, soon := "put a new certificate into "+crt.Path+"; hostler reads it automatically", "hostler does not renew a certificate in a kubeconfig"
	if crt.Renewed {
		fix, soon = "see `hostler status` for the reason", "it should have been renewed"
		if !f.Agent.Answers {
			fix = start(f)
		}
	}
	if c.CertificateErr != nil {
		fix = "" // waiting has the hint
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

// clusterNode checks the Node and its Lease as other clients see them.
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
		if c.Managed && w.Name == "kubelet" && c.now().Sub(w.Last) < freshWrite {
			found.add(fail("stop the kubelet that calls itself "+c.Node+", or give this host another node.name",
				"a kubelet also writes this Node, last at %s, but no kubelet runs on this host", date(w.Last)))
		}
	}
	switch {
	case c.NotWritten != "":
		return found.or(ok("this host does not write the Node: %s", c.NotWritten))
	case !c.Managed:
		return found.or(ok("the Node is not managed by hostler: its lease and status are not checked"))
	}
	return found.or(ok("the lease is renewed, the Node is as configured, and nothing else writes its status"))
}

// clusterRights checks whether the credentials allow what hostler does.
func clusterRights(f Facts) Check {
	c := f.Cluster
	if c == nil || !c.Rights.Checked {
		return Check{}
	}
	r := c.Rights
	switch {
	case r.Err != nil:
		return warn("do nothing if the other checks are ok", "the server does not report what this node may do: %v", r.Err)
	case len(r.Missing) > 0:
		return fail(fmt.Sprintf("use credentials of user system:node:%s in group system:nodes, on a control plane with --authorization-mode=Node,RBAC", c.Node),
			"the credentials do not allow: %s", strings.Join(r.Missing, ", "))
	}
	if r.Delete {
		return ok("the credentials allow everything, including `hostler leave`")
	}
	return ok("the credentials allow everything except `hostler leave`, which needs the right to delete the Node (/usr/share/doc/hostler/docs/reference/kubernetes.md)")
}
