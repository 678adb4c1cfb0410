package doctor_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane"
)

// inEtcd is a healthy host whose Node is in etcd.
func inEtcd() doctor.Facts {
	f := healthy()
	f.Etcd = &doctor.Etcd{
		StoreState:  doctor.StoreState{Node: "n", Found: true, Managed: true},
		Members:     []doctor.Member{{Endpoint: "https://e1:2379"}, {Endpoint: "https://e2:2379"}},
		Certificate: &doctor.Certificate{Path: "/etc/hostler/etcd.crt", Begins: time.Now().Add(-time.Hour), Ends: time.Now().Add(24 * time.Hour)},
	}
	return f
}

func TestAHostInEtcdIsFine(t *testing.T) {
	for _, c := range doctor.Examine(inEtcd()).Checks {
		if strings.HasPrefix(c.Name, "etcd") && c.Status != doctor.OK {
			t.Errorf("Examine() = %v, want it ok", c)
		}
	}
}

func TestTheCauseOfAFaultOfEtcdIsListedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*doctor.Etcd)
		want  []string // failing checks and fixes, in their order
	}{
		"a right is missing": {func(e *doctor.Etcd) {
			e.WriteErr, e.MissingRights, e.Grants = clientError(controlplane.ErrForbidden), []string{"write /hostler/leases/n"}, "etcdctl A"
			e.LeaseExpired = "lease not renewed for 50s"
		}, []string{"etcd-rights: etcdctl A", "etcd: see check etcd-rights", "etcd-node: see check etcd-rights"}},
		"the key does not match the certificate": {func(e *doctor.Etcd) {
			e.Certificate, e.Err = nil, errors.New("tls: private key does not match public key")
			for i := range e.Members {
				e.Members[i].Err = clientError(controlplane.ErrUnavailable)
			}
			e.LeaseExpired = "lease not renewed for 50s"
		}, []string{
			"etcd-credentials: correct the file; hostler reads it again automatically",
			"etcd: see check etcd-credentials", "etcd-node: see check etcd-credentials",
		}},
		"the certificate has expired": {func(e *doctor.Etcd) {
			e.Certificate.Ends = time.Now().Add(-time.Minute)
			for i := range e.Members {
				e.Members[i].Err = clientError(controlplane.ErrUnavailable, controlplane.ErrUnauthorized)
			}
		}, []string{"etcd-credentials: put a new certificate into /etc/hostler/etcd.crt and its key into the file of controlPlane.etcd.tls.key; hostler reads them automatically", "etcd: see check etcd-credentials"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := inEtcd()
			c.spoil(f.Etcd)
			var got []string
			for _, check := range doctor.Examine(f).Checks {
				if check.Status == doctor.Fail {
					got = append(got, check.Name+": "+check.Hint)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("failing checks = %q, want %q", got, c.want)
			}
		})
	}
}

func TestEachFaultOfEtcdIsFoundWithItsFix(t *testing.T) {
	unresponsive := func(f *doctor.Facts, err error) {
		for i := range f.Etcd.Members {
			f.Etcd.Members[i].Err = err
		}
		f.Etcd.Found = false
	}
	for _, c := range []struct {
		name  string
		spoil func(*doctor.Facts)
		want  []string // "status name" and parts of message or hint, with "|" between
	}{
		{"nobody answers", func(f *doctor.Facts) {
			unresponsive(f, clientError(controlplane.ErrUnavailable))
			f.Etcd.LeaseExpired, f.Etcd.TLS = "lease not renewed for 50s", []string{"--cacert=/etc/hostler/ca.crt", "--cert=/etc/hostler/etcd.crt"}
		}, []string{"fail etcd|no member answers|etcdctl --endpoints=https://e1:2379 --cacert=/etc/hostler/ca.crt --cert=/etc/hostler/etcd.crt endpoint health", "fail etcd-node|the lease has expired: lease not renewed for 50s|see check etcd"}},
		{"the files are the service's own", func(f *doctor.Facts) { f.Etcd = &doctor.Etcd{Unchecked: true} }, []string{"unknown etcd|not checked|see check agent"}},
		{
			"one member is away", func(f *doctor.Facts) { f.Etcd.Members[1].Err = clientError(controlplane.ErrUnavailable) },
			[]string{"warn etcd|1 of 2 members answer; no answer from https://e2:2379"},
		},
		{
			"somebody else answers", func(f *doctor.Facts) {
				unresponsive(f, clientError(controlplane.ErrUnavailable, controlplane.ErrUntrusted))
			},
			[]string{"fail etcd|controlPlane.etcd.tls.ca|`date`"},
		},
		{
			"a file is missing", func(f *doctor.Facts) { unresponsive(f, clientError(controlplane.ErrUnavailable, fs.ErrNotExist)) },
			[]string{"fail etcd|cannot connect to any member|create the file, or correct its path in controlPlane.etcd"},
		},
		{
			"the credentials are not accepted", func(f *doctor.Facts) {
				unresponsive(f, clientError(controlplane.ErrUnavailable, controlplane.ErrUnauthorized))
			},
			[]string{"fail etcd|credentials that the cluster accepts"},
		},
		{
			"another machine has the name", func(f *doctor.Facts) { f.Etcd.WriteErr = &controlplane.IdentityError{Name: "n"} },
			[]string{"fail etcd|the agent's last write failed|node.takeover"},
		},
		{"rights are missing", func(f *doctor.Facts) {
			f.Etcd.WriteErr = clientError(controlplane.ErrForbidden)
			f.Etcd.MissingRights = []string{"read /hostler/leases/n", "write /hostler/leases/n"}
			f.Etcd.SettingUnreadable, f.Etcd.Grants = "/hostler/settings/lease-duration", "etcdctl A; etcdctl B"
		}, []string{
			"fail etcd|see check etcd-rights",
			"fail etcd-rights|does not allow: read /hostler/leases/n, write /hostler/leases/n, read /hostler/settings/lease-duration|etcdctl A; etcdctl B",
		}},
		{
			"rights are not reported", func(f *doctor.Facts) { f.Etcd.RightsErr = errors.New("no leader") },
			[]string{"warn etcd-rights|does not report|no leader"},
		},
		{
			"the lease duration for all hosts may not be read", func(f *doctor.Facts) {
				f.Etcd.SettingUnreadable, f.Etcd.Grants = "/hostler/settings/lease-duration", "etcdctl A"
			},
			[]string{"warn etcd-rights|does not get|etcdctl A"},
		},
		{
			"rights are not enforced", func(f *doctor.Facts) { f.Etcd.Weaknesses = []string{"CVE-2026-33343"} },
			[]string{"warn etcd-rights|does not enforce|CVE-2026-33343|upgrade etcd to 3.5.33, 3.6.14, 3.7.1"},
		},
		{
			"the certificate has ended", func(f *doctor.Facts) { f.Etcd.Certificate.Ends = time.Now().Add(-time.Minute) },
			[]string{"fail etcd-credentials|/etc/hostler/etcd.crt expired on|put a new certificate"},
		},
		{
			"the certificate is about to end", func(f *doctor.Facts) { f.Etcd.Certificate.Ends = time.Now().Add(time.Minute) },
			[]string{"warn etcd-credentials|expires in|does not renew it"},
		},
		{
			"the certificate is not good yet", func(f *doctor.Facts) { f.Etcd.Certificate.Begins = time.Now().Add(time.Minute) },
			[]string{"fail etcd-credentials|is not valid before|`date`"},
		},
		{"the certificate cannot be read", func(f *doctor.Facts) {
			f.Etcd.Certificate, f.Etcd.Err = nil, errors.New("no PEM in it")
		}, []string{"fail etcd-credentials|no PEM in it|correct the file"}},
		{
			"others can read the key", func(f *doctor.Facts) { f.Etcd.Exposed = []string{"/etc/hostler/etcd.key"} },
			[]string{"warn etcd-credentials|other users on this host can read|chmod 600 /etc/hostler/etcd.key"},
		},
		{
			"everyone on the way can read", func(f *doctor.Facts) { f.Etcd.Plain = []string{"http://e1:2379"} },
			[]string{"warn etcd-credentials|http://e1:2379 is plain http|use https"},
		},
		{
			"the lease is gone", func(f *doctor.Facts) { f.Etcd.LeaseExpired = "there is a node n and no lease of it" },
			[]string{"fail etcd-node|the lease has expired: there is a node n and no lease"},
		},
		{
			"a taint is missing", func(f *doctor.Facts) {
				f.Etcd.Drift = []doctor.Fix{{Message: "it is cordoned", Command: "hostler uncordon"}}
			},
			[]string{"warn etcd-node|it is cordoned|hostler uncordon"},
		},
		{
			"the Node is waited for", func(f *doctor.Facts) { f.Etcd.Found, f.Etcd.NotWritten = false, "node.register is false" },
			[]string{"warn etcd|node n does not exist: node.register is false"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := inEtcd()
			c.spoil(&f)
			finds(t, doctor.Examine(f), c.want)
		})
	}
}
