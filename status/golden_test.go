package status_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

var update = flag.Bool("update", false, "write the golden files")

const hosts = "../test/hosts"

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// captured has the parts of a fixture that a tree of files cannot contain: results of statfs,
// netlink, the runtimes and the shutdown guard on that machine, and the stalls that its
// configuration needs.
type captured struct {
	Architecture string
	Filesystems  []struct {
		Role string
		probe.Filesystem
	}
	Network  probe.Network
	Runtimes []runtime.Info
	Shutdown status.Shutdown
	PSI      []struct {
		Resource, Kind, Window string
		Threshold              status.Threshold
	}
}

// host returns the facts and the configuration of a fixture.
func host(t testing.TB, name string) (status.Facts, status.Options) {
	t.Helper()
	root := filepath.Join(hosts, name)
	reader, err := probe.New(root)
	if err != nil {
		t.Fatal(err)
	}
	machine, err := reader.Machine()
	if err != nil {
		t.Fatal(err)
	}
	usage := reader.Usage(t.Context())
	facts := status.Facts{Machine: machine, Memory: usage.Memory, CPUs: usage.CPUs, PIDs: usage.PIDs, RuntimesQueried: true}

	data, err := os.ReadFile(filepath.Join(root, "facts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c captured
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		t.Fatalf("read facts of %s: %v", name, err)
	}
	facts.Machine.Architecture = c.Architecture
	facts.Network, facts.Shutdown = c.Network, c.Shutdown
	for _, fs := range c.Filesystems {
		role := status.RoleNode
		if fs.Role == status.RoleImage.String() {
			role = status.RoleImage
		}
		facts.Filesystems = append(facts.Filesystems, status.Filesystem{Role: role, Filesystem: fs.Filesystem})
	}
	for _, info := range c.Runtimes {
		facts.Runtimes = append(facts.Runtimes, runtime.Health{Info: info, Since: noon.Add(-time.Hour)})
	}

	o := defaultOptions()
	o.Version = "v0.1.0"
	for _, l := range c.PSI {
		window, err := time.ParseDuration(l.Window)
		if err != nil {
			t.Fatal(err)
		}
		o.Pressure.PSI = append(o.Pressure.PSI, status.StallLimit{Resource: l.Resource, Kind: l.Kind, Window: window, Threshold: l.Threshold})
	}
	facts.Stalls = reader.Stalls(o.Pressure.Stalls())
	if o.Name, err = status.NodeName("", facts.Machine.HostName); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	return facts, o
}

func TestNodesOfCapturedHosts(t *testing.T) {
	entries, err := os.ReadDir(hosts)
	if err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !e.IsDir() })
	if len(entries) < 3 {
		t.Fatalf("%s holds %d hosts, want 3 at least", hosts, len(entries))
	}
	for _, e := range entries {
		t.Run(e.Name(), func(t *testing.T) {
			facts, o := host(t, e.Name())
			node, _ := status.Node(facts, o, status.Memory{}, noon)
			golden(t, filepath.Join(hosts, e.Name(), "node.json"), node)
			golden(t, filepath.Join(hosts, e.Name(), "topology.json"), status.NewTopology(facts))
		})
	}
}

func golden(t *testing.T, file string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s = %s\nwant %s\n(-update writes what is)", file, got, want)
	}
}
