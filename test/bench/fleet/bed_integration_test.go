//go:build integration

package fleet_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	etcdstore "hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/test/bench/fleet"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/kube"
)

const (
	// scratch is the folder of etcd's data: on a real disk, because the lab's folders are in memory.
	// `make clean` removes it, too.
	scratch = "../../../dist"
	prefix  = "/hostler"
	version = "0.0.0-bench"

	// Flags of etcd in addition to the bed's: as in docs/reference/etcd.md, and with a quota that an
	// hour of benchmarks does not reach.
	compaction = "--auto-compaction-mode=periodic --auto-compaction-retention=10m"
	quota      = "--quota-backend-bytes=8589934592"
)

// kind is a control plane on which fleets are tested.
type kind struct {
	name        string
	connections int // connections of an agent
	open        func(tb testing.TB) *bed
}

func kinds() []kind {
	return []kind{
		{"etcd", 1, openEtcd},
		{"kube-apiserver", 2, openKubernetes},
	}
}

// bed is a new, empty control plane, and a client of its etcd.
type bed struct {
	connect func(name string) (fleet.Client, error)
	meter   fleet.Meter
	store   *clientv3.Client // of its etcd
	leases  string           // prefix of the keys of Leases
	data    string           // folder of its etcd
	log     func() string    // last output of the servers
	close   func() error
}

// end stops it. If the test has failed, it logs the output of the servers.
func (d *bed) end(tb testing.TB) {
	tb.Helper()
	if tb.Failed() {
		tb.Log(d.log())
	}
	check(tb, d.store.Close())
	check(tb, d.close())
	check(tb, os.RemoveAll(d.data))
}

// dataDir returns a new folder for etcd's data.
func dataDir(tb testing.TB) string {
	tb.Helper()
	below, err := filepath.Abs(scratch)
	check(tb, err)
	check(tb, os.MkdirAll(below, 0o755))
	dir, err := os.MkdirTemp(below, "fleet-")
	check(tb, err)
	return dir
}

func openEtcd(tb testing.TB) *bed {
	tb.Helper()
	data := dataDir(tb)
	c, err := etcd.Start(tb.Context(), etcd.Options{TLS: true, HTTPApart: true, Flags: append(strings.Fields(compaction), quota, "--data-dir="+data)})
	check(tb, err)
	agents, err := c.Client("fleet", 24*time.Hour)
	check(tb, err)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	text, err := os.ReadFile(c.CAFile)
	check(tb, err)
	config.RootCAs.AppendCertsFromPEM(text)
	pair, err := tls.LoadX509KeyPair(agents.Certificate, agents.Key)
	check(tb, err)
	config.Certificates = []tls.Certificate{pair}
	store, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), TLS: config})
	check(tb, err)
	member := c.Members[0]
	return &bed{
		connect: func(string) (fleet.Client, error) {
			s, err := etcdstore.New(etcdstore.Options{
				Endpoints: c.Endpoints(), Prefix: prefix, CA: c.CAFile, Certificate: agents.Certificate, Key: agents.Key,
				Version: version,
			})
			if err != nil {
				return nil, err
			}
			return objects.New(s, objects.Options{}), nil
		},
		meter: fleet.Meter{
			Metrics: member.HTTP + "/metrics", Client: &http.Client{Transport: &http.Transport{TLSClientConfig: config}},
			Processes: map[string]int{"etcd": member.PID(), "fleet": os.Getpid()},
		},
		store: store, leases: prefix + "/leases/", data: data,
		log:   func() string { return "log of etcd:\n" + member.Log(30) },
		close: c.Close,
	}
}

func openKubernetes(tb testing.TB) *bed {
	tb.Helper()
	data := dataDir(tb)
	c, err := kube.Start(tb.Context(), kube.Options{
		EtcdFlags: []string{quota, "--data-dir=" + data},
		// The bed's audit log is only needed to count requests.
		APIServerFlags: []string{"--audit-log-path=", "--audit-policy-file="},
	})
	check(tb, err)
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + c.EtcdSocket()}})
	check(tb, err)
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.EtcdSocket())
	}
	return &bed{
		connect: func(name string) (fleet.Client, error) {
			kubeconfig, err := c.NodeKubeconfig(name)
			if err != nil {
				return nil, err
			}
			return kubernetes.New(kubernetes.Options{Kubeconfig: kubeconfig, Version: version, Log: slog.New(slog.DiscardHandler)})
		},
		meter: fleet.Meter{
			Metrics: "http://etcd/metrics", Client: &http.Client{Transport: &http.Transport{DialContext: dial}},
			Processes: map[string]int{"etcd": c.Etcd.PID(), "kube-apiserver": c.APIServer.PID(), "fleet": os.Getpid()},
		},
		store: store, leases: "/registry/leases/kube-node-lease/", data: data,
		log: func() string {
			return fmt.Sprintf("log of etcd:\n%s\nlog of kube-apiserver:\n%s", c.Etcd.Log(30), c.APIServer.Log(30))
		},
		close: c.Close,
	}
}

// host returns the status of a server with 20 pods, and as many images as a Node lists.
func host(tb testing.TB) *corev1.Node {
	tb.Helper()
	text, err := os.ReadFile("../../hosts/psi-server/node.json")
	check(tb, err)
	node := &corev1.Node{}
	check(tb, json.Unmarshal(text, node))
	node.Status.Images = nil
	for i := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{
				fmt.Sprintf("registry.example.com/platform/service-%02d@sha256:%064x", i, i+1),
				fmt.Sprintf("registry.example.com/platform/service-%02d:v1.2.3", i),
			},
			SizeBytes: int64(i+1) * 7_919_000,
		})
	}
	return node
}
