package doctor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
)

const (
	own       = "/var/lib/hostler/pki/hostler-client.pem"
	bootstrap = "/etc/hostler/bootstrap.kubeconfig"
)

// member is a healthy host that joined a cluster with a bootstrap kubeconfig.
func member() doctor.Facts {
	now := time.Now()
	f := healthy()
	f.Cluster = &doctor.Cluster{
		Node: "n", Kubeconfig: bootstrap, Server: "https://192.0.2.2:6443", Now: now, Found: true, Managed: true,
		Certificate: &doctor.Certificate{Path: own, Begins: now.Add(-24 * time.Hour), Ends: now.Add(300 * 24 * time.Hour), Renewed: true},
		Others:      []doctor.Writer{{Name: "kube-controller-manager", Last: now}},
		Rights:      doctor.Rights{Checked: true},
	}
	return f
}

// clientError wraps an error in classes, as a client does.
func clientError(classes ...error) error {
	err := errors.New("some cause")
	for _, class := range slices.Backward(classes) {
		err = fmt.Errorf("%w: %w", class, err)
	}
	return fmt.Errorf("get node %q: %w", "n", err)
}

func TestAHealthyNodeOfAClusterHasNothingToFix(t *testing.T) {
	for name, change := range map[string]func(*doctor.Facts){
		"joined by bootstrap":    func(*doctor.Facts) {},
		"with a kubeconfig":      func(f *doctor.Facts) { f.Cluster.Certificate.Renewed = false },
		"with a token":           func(f *doctor.Facts) { f.Cluster.Certificate = nil },
		"that may delete itself": func(f *doctor.Facts) { f.Cluster.Rights.Delete = true },
		"beside a kubelet":       func(f *doctor.Facts) { f.Cluster.Managed, f.Cluster.Others[0].Name = false, "kubelet" },
		"that a kubelet had": func(f *doctor.Facts) {
			f.Cluster.Others[0] = doctor.Writer{Name: "kubelet", Last: f.Cluster.Now.Add(-time.Hour)}
		},
		"whose clock is nearly right": func(f *doctor.Facts) { f.Cluster.Skew = -5 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			f := member()
			change(&f)
			r := doctor.Examine(f)
			if r.Count(doctor.OK) != len(r.Checks) || len(r.Checks) != len(doctor.Examine(healthy()).Checks)+5 {
				t.Errorf("Examine() = %+v, want all ok, with 5 checks of the cluster", r)
			}
		})
	}
}

func TestChecksOfANodeClaimOnlyWhatWasChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*doctor.Cluster)
		want   string
	}{
		"hostler's":   {func(*doctor.Cluster) {}, "the lease is renewed, the Node is as configured, and nothing else writes its status"},
		"a kubelet's": {func(c *doctor.Cluster) { c.Managed, c.Others[0].Name = false, "kubelet" }, "the Node is not managed by hostler: its lease and status are not checked"},
		"that is to leave": {
			func(c *doctor.Cluster) { c.NotWritten = "alice asked to take the Node off the control plane" },
			"this host does not write the Node: alice asked to take the Node off the control plane",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := member()
			c.change(f.Cluster)
			checks := doctor.Examine(f).Checks
			i := slices.IndexFunc(checks, func(c doctor.Check) bool { return c.Name == "cluster-node" })
			if i < 0 || checks[i].Status != doctor.OK || checks[i].Message != c.want {
				t.Errorf("Examine() = %+v, want cluster-node ok: %s", checks, c.want)
			}
		})
	}
}

func TestEachFaultOfTheClusterIsFoundWithItsFix(t *testing.T) {
	unread := func(f *doctor.Facts, err error) {
		f.Cluster.Err, f.Cluster.Found, f.Cluster.Rights = err, false, doctor.Rights{}
	}
	for _, c := range []struct {
		name  string
		spoil func(*doctor.Facts)
		want  []string // "status name" and parts of message or hint, with "|" between
	}{
		{"it does not answer", func(f *doctor.Facts) {
			unread(f, clientError(controlplane.ErrUnavailable))
			f.Cluster.Now, f.Cluster.LeaseExpired = time.Time{}, "lease not renewed for 50s"
		}, []string{
			"fail cluster|https://192.0.2.2:6443 does not answer|some cause|curl -k https://192.0.2.2:6443/livez",
			"fail cluster-node|the lease has expired: lease not renewed for 50s|the checks of the cluster",
		}},
		{
			"somebody else answers", func(f *doctor.Facts) { unread(f, clientError(controlplane.ErrUnavailable, controlplane.ErrUntrusted)) },
			[]string{"fail cluster|is not trusted|certificate-authority and server in " + bootstrap + "|`date`"},
		},
		{"the credentials are not accepted", func(f *doctor.Facts) {
			unread(f, clientError(controlplane.ErrUnavailable, controlplane.ErrUnauthorized))
			f.Cluster.Certificate = nil
		}, []string{"fail cluster|does not accept this host's credentials|credentials of this cluster into " + bootstrap}},
		{"the certificate is not accepted, and the token has expired", func(f *doctor.Facts) {
			unread(f, clientError(controlplane.ErrUnavailable, controlplane.ErrUnauthorized))
			f.Cluster.Certificate.Refused, f.Cluster.CertificateErr = true, clientError(controlplane.ErrUnauthorized)
		}, []string{
			"fail cluster|does not accept|requests a new certificate automatically|cluster-credentials",
			"fail cluster-credentials|the certificate is not accepted, and no new one is issued|kubeadm token create",
		}},
		{
			"the credentials are another's", func(f *doctor.Facts) { unread(f, clientError(controlplane.ErrForbidden)) },
			[]string{"fail cluster|they may not read node n|system:node:n"},
		},
		{"the kubeconfig is torn", func(f *doctor.Facts) {
			unread(f, clientError(controlplane.ErrUnavailable))
			f.Cluster.Server, f.Cluster.Now = "", time.Time{}
		}, []string{"fail cluster|some cause|correct the file"}},
		{"a write is refused for its labels", func(f *doctor.Facts) {
			f.Cluster.WriteErr = &controlplane.LabelsError{Err: fmt.Errorf("%w: is not allowed to modify labels: node-role.kubernetes.io/x", controlplane.ErrForbidden)}
		}, []string{"fail cluster|the agent's last write failed|node-role.kubernetes.io/x|from node.labels|kubectl label node n"}},
		{
			"another machine has the name", func(f *doctor.Facts) { f.Cluster.WriteErr = &controlplane.IdentityError{Name: "n"} },
			[]string{"fail cluster|another node.name|node.takeover"},
		},
		{
			"the Node is waited for", func(f *doctor.Facts) { f.Cluster.Found, f.Cluster.NotWritten = false, "node.register is false" },
			[]string{"warn cluster|node n does not exist: node.register is false"},
		},
		{"nobody has approved the first request", func(f *doctor.Facts) {
			unread(f, errors.New("no certificate"))
			f.Cluster.Certificate, f.Cluster.Now = nil, time.Time{}
			f.Cluster.CertificateErr = &certificate.WaitingError{Request: "node-csr-1"}
		}, []string{"fail cluster-credentials|no certificate yet: request node-csr-1 waits | as an administrator: `kubectl certificate approve node-csr-1`"}},
		{"nobody has approved the renewal", func(f *doctor.Facts) {
			f.Cluster.CertificateErr = &certificate.WaitingError{Request: "node-csr-1"}
			f.Cluster.Certificate.Ends = f.Cluster.Now.Add(time.Hour)
		}, []string{"warn cluster-credentials|the certificate is not renewed|kubectl certificate approve node-csr-1"}},
		{
			"it should have been renewed", func(f *doctor.Facts) { f.Cluster.Certificate.Ends = f.Cluster.Now.Add(time.Hour) },
			[]string{"warn cluster-credentials|expires in 1h0m0s|it should have been renewed|hostler status"},
		},
		{"nobody renews it, and its end is near", func(f *doctor.Facts) {
			f.Cluster.Certificate.Ends, f.Cluster.Certificate.Renewed = f.Cluster.Now.Add(time.Hour), false
		}, []string{"warn cluster-credentials|expires in 1h0m0s|does not renew a certificate in a kubeconfig|put a new certificate into " + own}},
		{
			"it is over", func(f *doctor.Facts) { f.Cluster.Certificate.Ends = f.Cluster.Now.Add(-time.Hour) },
			[]string{"fail cluster-credentials|expired on "},
		},
		{"it is over, and no agent asks for another", func(f *doctor.Facts) {
			down(f)
			f.Systemd.Service.ActiveState = "inactive"
			f.Cluster.Certificate.Ends = f.Cluster.Now.Add(-time.Hour)
		}, []string{"fail agent", "fail cluster-credentials|expired on | systemctl start hostler", "*"}},
		{
			"it is not good yet", func(f *doctor.Facts) { f.Cluster.Certificate.Begins = f.Cluster.Now.Add(time.Hour) },
			[]string{"fail cluster-credentials|not valid before|`date`"},
		},
		{
			"others can read it", func(f *doctor.Facts) { f.Cluster.Exposed = []string{bootstrap} },
			[]string{"warn cluster-credentials|other users on this host can read it | chmod 600 " + bootstrap},
		},
		{"the clock is behind", func(f *doctor.Facts) { f.Cluster.Skew = -time.Hour }, []string{"warn cluster-clock|is 1h0m0s behind|timedatectl"}},
		{"the clock is ahead", func(f *doctor.Facts) { f.Cluster.Skew = time.Hour }, []string{"warn cluster-clock|is 1h0m0s ahead of"}},
		{"a taint lacks", func(f *doctor.Facts) {
			f.Cluster.Drift = []doctor.Fix{{Message: "the Node lacks the configured taints x:NoSchedule", Command: "kubectl taint nodes n x:NoSchedule"}}
		}, []string{"warn cluster-node|lacks the configured taints x:NoSchedule | `kubectl taint nodes n x:NoSchedule`"}},
		{
			"a kubelet elsewhere has the name", func(f *doctor.Facts) { f.Cluster.Others[0].Name = "kubelet" },
			[]string{"fail cluster-node|a kubelet also writes this Node|no kubelet runs on this host|stop the kubelet that calls itself n"},
		},
		{
			"rights lack", func(f *doctor.Facts) {
				f.Cluster.Rights.Missing = []string{"patch nodes/status", "create events in default"}
			},
			[]string{"fail cluster-rights|do not allow: patch nodes/status, create events in default|system:node:n"},
		},
		{
			"the server does not report rights", func(f *doctor.Facts) { f.Cluster.Rights.Err = clientError(controlplane.ErrForbidden) },
			[]string{"warn cluster-rights|does not report"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := member()
			c.spoil(&f)
			finds(t, doctor.Examine(f), c.want)
		})
	}
}

// finds fails unless a report has these findings and no others. Each is "status name" and parts of message
// or hint, separated by "|". If the last one is "*", other findings are allowed.
func finds(t *testing.T, r doctor.Report, wants []string) {
	t.Helper()
	var got []string
	for _, check := range r.Checks {
		if check.Status != doctor.OK {
			got = append(got, fmt.Sprintf("%s %s: %s | %s", check.Status, check.Name, check.Message, check.Hint))
			if check.Message == "" || check.Hint == "" {
				t.Errorf("check %+v, want a message and a fix", check)
			}
		}
	}
	if len(got) != len(wants) && wants[len(wants)-1] != "*" {
		t.Fatalf("Examine() finds\n%s\nwant %d findings: %q", strings.Join(got, "\n"), len(wants), wants)
	}
	for _, want := range wants {
		parts := strings.Split(want, "|")
		if want != "*" && !slices.ContainsFunc(got, func(found string) bool {
			return strings.HasPrefix(found, parts[0]+": ") && !slices.ContainsFunc(parts[1:], func(p string) bool { return !strings.Contains(found, p) })
		}) {
			t.Errorf("Examine() finds\n%s\nwant %q", strings.Join(got, "\n"), want)
		}
	}
}

func TestCredentialsThatOnlyTheServiceHasAreNotJudged(t *testing.T) {
	f := member()
	f.Cluster = &doctor.Cluster{Unchecked: true}
	finds(t, doctor.Examine(f), []string{"unknown cluster|not checked|see check agent"})
}
