package doctor

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
)

// Etcd is the etcd cluster that stores this host's Node, as it answers now.
type Etcd struct {
	StoreState
	// Unchecked reports that only the service can read the files.
	Unchecked bool
	Members   []Member
	TLS       []string // flags of etcdctl for the configured files
	Plain     []string // endpoints on the network that use plain http
	Exposed   []string // files with secrets that other users on this host can read
	// Certificate is the client certificate; nil if there is none, or if it cannot be read. Err is why
	// it cannot.
	Certificate *Certificate
	Err         error
	User        string // authenticates with a password; empty for none
	// MissingRights are the missing rights. RightsErr is why the rights are not known.
	MissingRights []string
	RightsErr     error
	Weaknesses    []string // CVEs by which hosts can use keys that their rights do not cover
	// SettingUnreadable is the key with the Lease duration for the fleet; set if this host may not
	// read it.
	SettingUnreadable string
	Grants            string // the commands that grant all missing rights, and who runs them
}

// Member is a member of the cluster.
type Member struct {
	Endpoint string
	Err      error // nil if it answers
}

// unreachable are the members that do not answer.
func (e *Etcd) unreachable() (endpoints []string, first error) {
	for _, m := range e.Members {
		if m.Err != nil {
			endpoints = append(endpoints, m.Endpoint)
			if first == nil {
				first = m.Err
			}
		}
	}
	return endpoints, first
}

// answers reports whether at least one member answers.
func (e *Etcd) answers() bool {
	unresponsive, _ := e.unreachable()
	return len(unresponsive) < len(e.Members)
}

// etcdMembers checks whether the members answer and accept the credentials.
func etcdMembers(f Facts) Check {
	e := f.Etcd
	switch {
	case e == nil:
		return Check{}
	case e.Unchecked:
		return unchecked(f)
	}
	unresponsive, err := e.unreachable()
	who := strings.Join(unresponsive, ", ")
	switch {
	case len(unresponsive) > 0 && !e.answers():
		what := "no member answers"
		if answered(err) || fileFault(err) {
			what = "cannot connect to any member"
		}
		fix := e.fix(err, unresponsive[0])
		if e.credentialsFault() {
			what, fix = "cannot connect to any member", seeCredentials
		}
		c := fail(fix, "%s: %v", what, err)
		c.NoAccess = fix != seeCredentials && !answered(err)
		return c
	case e.WriteErr != nil:
		return fail(e.writingFix(f, seeRights), "etcd answers, but the agent's last write failed: %v", e.WriteErr)
	case len(unresponsive) > 0:
		c := warn(e.fix(err, unresponsive[0]), "%d of %d members answer; no answer from %s: %v", len(e.Members)-len(unresponsive), len(e.Members), who, err)
		c.NoAccess = !answered(err)
		return c
	case !e.Found && e.NotWritten != "":
		return warn("do nothing if this is intended", "etcd answers, but node %s does not exist: %s", e.Node, e.NotWritten)
	case !e.Found && f.Agent.Answers && len(e.MissingRights) == 0:
		return warn("see `hostler status`", "etcd answers, but node %s does not exist yet", e.Node)
	case !e.Found:
		return ok("etcd answers")
	}
	return ok("etcd answers, and node %s exists", e.Node)
}

// answered reports whether the error is an answer, even of a server that is not trusted.
func answered(err error) bool {
	return errors.Is(err, controlplane.ErrUntrusted) || errors.Is(err, controlplane.ErrUnauthorized)
}

// fileFault reports whether a configured file cannot be read.
func fileFault(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// fix is the hint for a member that does not answer.
func (e *Etcd) fix(err error, endpoint string) string {
	switch {
	case fileFault(err):
		return "create the file, or correct its path in controlPlane.etcd; hostler reads the files automatically"
	case errors.Is(err, controlplane.ErrUntrusted):
		return "set controlPlane.etcd.tls.ca to the CA of the members, and endpoints to names in their certificates; check `date`"
	case errors.Is(err, controlplane.ErrUnauthorized):
		return "give this host credentials that the cluster accepts (/usr/share/doc/hostler/docs/reference/etcd.md); hostler reads the files automatically"
	}
	flags := strings.Join(append([]string{"--endpoints=" + endpoint}, e.TLS...), " ")
	return "check that the member and most others run, and that this host reaches it: env -u ETCDCTL_ENDPOINTS etcdctl " + flags + " endpoint health"
}

// etcdCredentials checks the lifetime of the client certificate, who can read the secrets, and whether
// data crosses the network unencrypted.
func etcdCredentials(f Facts) Check {
	e := f.Etcd
	if e == nil || e.Unchecked {
		return Check{}
	}
	var found faults
	for _, path := range e.Exposed {
		found.add(warn("chmod 600 "+path, "%s holds secrets of this node, and other users on this host can read it", path))
	}
	for _, endpoint := range e.Plain {
		found.add(warn("use https, and remove controlPlane.etcd.insecure", "%s is plain http: anyone on the network path can read and change the data", endpoint))
	}
	if e.Err != nil {
		c := fail("correct the file; hostler reads it again automatically", "%v", e.Err)
		if fileFault(e.Err) {
			c.Hint, c.NoAccess = e.fix(e.Err, ""), true
		}
		found.add(c)
	}
	crt := e.Certificate
	if crt == nil {
		if e.User != "" {
			return found.or(ok("user %s authenticates with a password", e.User))
		}
		return found.or(ok("this host uses neither certificate nor user; etcd allows that if its auth is off"))
	}
	now := time.Now()
	found = append(found, crt.aging(now, "put a new certificate into "+crt.Path+" and its key into the file of controlPlane.etcd.tls.key; hostler reads them automatically", "hostler does not renew it")...)
	return found.or(crt.good(now, ""))
}

// etcdNode checks the Node and its Lease as other clients see them.
func etcdNode(f Facts) Check {
	e := f.Etcd
	if e == nil || !e.answers() && e.LeaseExpired == "" || !e.Found && e.LeaseExpired == "" {
		return Check{}
	}
	return e.judge(f, e.expiredFix(f))
}

// expiredFix is the hint for a Lease that the agent does not renew: it names the check with the cause.
func (e *Etcd) expiredFix(f Facts) string {
	switch {
	case e.credentialsFault():
		return seeCredentials
	case len(e.MissingRights) > 0:
		return seeRights
	case !e.answers() || e.WriteErr != nil:
		return "see check etcd"
	}
	return "hostler status; " + f.fixes().journal
}

// The hints that name the check with the cause.
const (
	seeCredentials = "see check etcd-credentials"
	seeRights      = "see check etcd-rights"
)

// credentialsFault reports whether no member can be used because check etcd-credentials fails.
func (e *Etcd) credentialsFault() bool {
	if e.answers() {
		return false
	}
	return e.Err != nil || e.Certificate != nil && time.Now().After(e.Certificate.Ends)
}

// etcdRights checks whether the cluster allows what hostler does.
func etcdRights(f Facts) Check {
	e := f.Etcd
	if e == nil || !e.answers() {
		return Check{}
	}
	switch {
	case e.RightsErr != nil:
		return warn("do nothing if the other checks are ok", "etcd does not report what this host may do: %v", e.RightsErr)
	case len(e.MissingRights) > 0:
		missing := e.MissingRights
		if e.SettingUnreadable != "" {
			missing = append(slices.Clip(missing), "read "+e.SettingUnreadable)
		}
		return fail(e.Grants, "etcd does not allow: %s", strings.Join(missing, ", "))
	case e.SettingUnreadable != "":
		return warn(e.Grants,
			"etcd does not allow reading %s: this host does not get the lease duration for the fleet", e.SettingUnreadable)
	case len(e.Weaknesses) > 0:
		return warn("upgrade etcd to 3.5.33, 3.6.14, 3.7.1 or later",
			"etcd allows everything that hostler needs, but does not enforce rights: each host can use the keys of all others (%s)", strings.Join(e.Weaknesses, ", "))
	}
	return ok("etcd allows everything that hostler needs")
}
