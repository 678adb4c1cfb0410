package agent

import (
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
)

func TestEachJobHasOneOwner(t *testing.T) {
	kubelet := map[job]api.Owner{jobNode: {Name: api.OwnerKubelet, Evidence: "process kubelet, pid 7"}}
	tests := []struct {
		name string
		set  config.Switch
		seen map[job]api.Owner
		want string
	}{
		{"auto, and nobody else is seen", config.Auto, nil, api.OwnerHostler},
		{"auto stands back for a kubelet", config.Auto, kubelet, api.OwnerKubelet},
		{"on does not", config.On, kubelet, api.OwnerHostler},
		{"on", config.On, nil, api.OwnerHostler},
		{"off names who has it", config.Off, kubelet, api.OwnerKubelet},
		{"off", config.Off, nil, api.OwnerNone},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			owners := decideOwners(map[job]config.Switch{jobNode: tt.set}, tt.seen)
			if got := owners[jobNode]; got.Name != tt.want || got.Evidence == "" {
				t.Errorf("decideOwners() = %+v, want %s and evidence", got, tt.want)
			}
			if len(owners) != len(jobs) {
				t.Errorf("decideOwners() names %d jobs, want all %d", len(owners), len(jobs))
			}
		})
	}
}

func TestAKubeletIsFoundByItsProcess(t *testing.T) {
	tests := []struct {
		name, comm, namespace string
		want                  bool
	}{
		{"a kubelet", "kubelet", "pid:[1]", true},
		{"k3s", "k3s-server", "pid:[1]", true},
		{"a kubelet of kind, in a container", "kubelet", "pid:[2]", false},
		{"something like it", "kubelet-helper", "pid:[1]", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			proc := t.TempDir()
			process(t, proc, "self", "hostler", "pid:[1]")
			process(t, proc, "1", "systemd", "pid:[1]")
			process(t, proc, "4711", tt.comm, tt.namespace)
			if evidence, found := findKubelet(proc); found != tt.want || found && evidence != "process "+tt.comm+", pid 4711" {
				t.Errorf("findKubelet() = %q, %v, want %v", evidence, found, tt.want)
			}
		})
	}
	if evidence, found := findKubelet(filepath.Join(t.TempDir(), "none")); found {
		t.Errorf("findKubelet() = %q without /proc, want nothing", evidence)
	}
}

// process makes what is read of a process under proc.
func process(t *testing.T, proc, pid, comm, namespace string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(proc, pid, "ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, pid, "comm"), []byte(comm+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(namespace, filepath.Join(proc, pid, "ns", "pid")); err != nil {
		t.Fatal(err)
	}
}
