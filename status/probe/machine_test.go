package probe_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/status/probe"
)

const hosts = "../../test/hosts"

func reader(t testing.TB, root string) *probe.Reader {
	t.Helper()
	r, err := probe.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tree writes files into a new root folder.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestMachineOfATwoSocketServer(t *testing.T) {
	m, err := reader(t, filepath.Join(hosts, "numa-server")).Machine()
	if err != nil {
		t.Fatal(err)
	}
	m.Architecture = ""
	want := probe.Machine{
		HostName:      "DB-Rack7-03.example.org",
		MachineID:     "9c1d7a5e3b2f4e6d8f0a1b2c3d4e5f60",
		SystemUUID:    "4c4c4544-0046-3610-8052-b4c04f4d4433",
		BootID:        "e4b1a6e0-0f1d-4d5d-8d6a-9b0f6a1f2c33",
		KernelVersion: "6.1.0-41-amd64",
		OSImage:       "Debian GNU/Linux 12 (bookworm)",
		CPUs:          16,
		MemoryBytes:   263856712 << 10,
		SwapBytes:     8388604 << 10,
		HugePages:     []probe.HugePages{{PageSizeBytes: 2 << 20, Pages: 8192}, {PageSizeBytes: 1 << 30, Pages: 16}},
		NUMANodes: []probe.NUMANode{
			{
				ID: 0, CPUs: []int{0, 2, 4, 6, 8, 10, 12, 14}, MemoryBytes: 131923968 << 10,
				HugePages: []probe.HugePages{{PageSizeBytes: 2 << 20, Pages: 6144}, {PageSizeBytes: 1 << 30, Pages: 16}},
			},
			{
				ID: 1, CPUs: []int{1, 3, 5, 7, 9, 11, 13, 15}, MemoryBytes: 131932744 << 10,
				HugePages: []probe.HugePages{{PageSizeBytes: 2 << 20, Pages: 2048}, {PageSizeBytes: 1 << 30, Pages: 0}},
			},
		},
		CgroupVersion: 2,
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("Machine() = %+v, want %+v", m, want)
	}
}

func TestMachineLeavesOutWhatTheHostLacks(t *testing.T) {
	const meminfo = "MemTotal: 1000 kB\nMemAvailable: 500 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  probe.Machine
	}{
		{
			"no DMI, no NUMA, no cgroups, no machine ID, no hotplug",
			map[string]string{"proc/meminfo": meminfo, "sys/devices/system/cpu/cpu0/topology/core_id": "0"},
			probe.Machine{OSImage: "Linux", CPUs: 1, MemoryBytes: 1000 << 10},
		},
		{
			"an ARM board whose CPUs report neither core nor package",
			map[string]string{
				"proc/meminfo": meminfo, "sys/devices/system/cpu/online": "0-1\n",
				"sys/devices/system/node/node0/cpu0/uevent": "", "sys/devices/system/node/node0/cpu1/uevent": "",
			},
			probe.Machine{OSImage: "Linux", CPUs: 2, MemoryBytes: 1000 << 10, NUMANodes: []probe.NUMANode{{CPUs: []int{0, 1}}}},
		},
		{
			"a node of memory without CPUs, and one CPU switched off",
			map[string]string{
				"proc/meminfo": meminfo, "sys/devices/system/cpu/online": "0\n",
				"sys/devices/system/node/node0/cpu0/topology/core_id": "0", "sys/devices/system/node/node0/cpu1/topology/core_id": "1",
				"sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 400 kB\n",
				"sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 600 kB\n",
			},
			probe.Machine{OSImage: "Linux", CPUs: 1, MemoryBytes: 1000 << 10, NUMANodes: []probe.NUMANode{
				{ID: 0, CPUs: []int{0}, MemoryBytes: 400 << 10}, {ID: 1, CPUs: []int{}, MemoryBytes: 600 << 10},
			}},
		},
		{
			"an image that has never been booted, its UUID in a POWER device tree",
			map[string]string{
				"proc/meminfo": meminfo, "sys/devices/system/cpu/online": "0\n", "sys/devices/system/cpu/cpu0/uevent": "",
				"etc/machine-id": "uninitialized\n", "proc/device-tree/vm,uuid": "0f0e\x00",
				"sys/fs/cgroup/pids/tasks": "", "usr/lib/os-release": "NAME='Flat car'\n",
			},
			probe.Machine{OSImage: "Flat car", SystemUUID: "0f0e", CPUs: 1, MemoryBytes: 1000 << 10, CgroupVersion: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := reader(t, tree(t, c.files)).Machine()
			if err != nil {
				t.Fatalf("Machine() = %v, want no error", err)
			}
			m.Architecture = ""
			if !reflect.DeepEqual(m, c.want) {
				t.Errorf("Machine() = %+v, want %+v", m, c.want)
			}
		})
	}
}

func TestMachineKeepsTheRestWhenOneFileIsBroken(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/meminfo":                                           "MemTotal: many kB\n",
		"proc/sys/kernel/hostname":                               "h1\n",
		"sys/devices/system/cpu/online":                          "0-x\n",
		"sys/devices/system/node/node0/cpu0/topology/core_id":    "0",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":  "3\n",
		"sys/kernel/mm/hugepages/something-else-1/nr_hugepages":  "3\n",
		"sys/kernel/mm/hugepages/nodashatallinthis/nr_hugepages": "3\n",
	})
	m, err := reader(t, root).Machine()
	if err == nil || !strings.Contains(err.Error(), "memory size") || !strings.Contains(err.Error(), `"0-x"`) {
		t.Errorf("Machine() = %v, want an error on memory size and CPU list", err)
	}
	if want := []probe.HugePages{{PageSizeBytes: 2 << 20, Pages: 3}}; m.HostName != "h1" || m.CPUs != 1 || !slices.Equal(m.HugePages, want) {
		t.Errorf("Machine() = %+v, want host name h1, one CPU and 3 huge pages", m)
	}
}

func TestNewFailsWithoutProc(t *testing.T) {
	if _, err := probe.New(t.TempDir()); err == nil || !strings.Contains(err.Error(), "mount /proc") {
		t.Errorf("New(empty folder) = %v, want an error with a hint", err)
	}
}

func TestMachineOfThisHost(t *testing.T) {
	m, err := reader(t, "/").Machine()
	if err != nil {
		t.Fatal(err)
	}
	if m.CPUs < 1 || m.MemoryBytes == 0 || m.HostName == "" || m.BootID == "" || m.KernelVersion == "" || m.OSImage == "" {
		t.Errorf("Machine() = %+v, want CPUs, memory, host name, boot ID, kernel and OS", m)
	}
}

func TestPrettyName(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"double quotes", "NAME=x\nPRETTY_NAME=\"A \\\"b\\\" \\$c\"\n", `A "b" $c`},
		{"single quotes keep backslashes", `PRETTY_NAME='A \b'`, `A \b`},
		{"no quotes", "# comment\n\n  PRETTY_NAME=Alpine  \n", "Alpine"},
		{"the name where there is no pretty one", "NAME=Void\nPRETTY_NAME=\n", "Void"},
		{"an empty file", "", "Linux"},
		{"a lone quote", `PRETTY_NAME="`, `"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := probe.PrettyName(c.file); got != c.want {
				t.Errorf("prettyName(%q) = %q, want %q", c.file, got, c.want)
			}
		})
	}
}

func FuzzPrettyName(f *testing.F) {
	f.Add("PRETTY_NAME=\"Debian\"\n")
	f.Add("PRETTY_NAME='\n=\n\\")
	f.Fuzz(func(t *testing.T, file string) {
		if got := probe.PrettyName(file); strings.Contains(got, "\n") || len(got) > len(file)+len("Linux") {
			t.Errorf("prettyName(%q) = %q, want one line of the file", file, got)
		}
	})
}

func TestParseCPUList(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []int
		wrong      bool
	}{
		{name: "ranges and single ones", text: "0-2,8,10-11", want: []int{0, 1, 2, 8, 10, 11}},
		{name: "nothing", text: ""},
		{name: "overlaps count once", text: "1-2,2,0", want: []int{0, 1, 2}},
		{name: "a range backwards", text: "3-1", wrong: true},
		{name: "a word", text: "all", wrong: true},
		{name: "more CPUs than any machine has", text: "0-99999999", wrong: true},
		{name: "an empty part", text: "0,,1", wrong: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := probe.ParseCPUList(c.text)
			if !slices.Equal(got, c.want) || (err != nil) != c.wrong {
				t.Errorf("parseCPUList(%q) = %v, %v, want %v", c.text, got, err, c.want)
			}
		})
	}
}

func FuzzParseCPUList(f *testing.F) {
	f.Add("0-3,8")
	f.Add("0-65535,0-65535")
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := probe.ParseCPUList(text)
		if err != nil && cpus != nil {
			t.Errorf("parseCPUList(%q) = %v beside error %v", text, cpus, err)
		}
		if !slices.IsSorted(cpus) || len(slices.Compact(slices.Clone(cpus))) != len(cpus) {
			t.Errorf("parseCPUList(%q) = %v, want each CPU once, ascending", text, cpus)
		}
	})
}

func TestADefaultHostNameIsEmpty(t *testing.T) {
	for _, c := range []struct{ name, kernel, file, release, want string }{
		{"a name", "web-1\n", "web-1\n", "", "web-1"},
		{"a transient one", "web-1", "", "DEFAULT_HOSTNAME=fedora\n", "web-1"},
		{"the kernel's", "(none)\n", "", "", ""},
		{"the operating system's", "fedora", "", "NAME=Fedora\nDEFAULT_HOSTNAME=\"fedora\"\n", ""},
		{"that as a person's choice", "fedora", "fedora\n", "DEFAULT_HOSTNAME=fedora\n", "fedora"},
		{"none without a fallback", "", "", "", ""},
	} {
		root := tree(t, map[string]string{"proc/stat": "", "proc/sys/kernel/hostname": c.kernel, "etc/hostname": c.file, "etc/os-release": c.release})
		if got := reader(t, root).HostName(); got != c.want {
			t.Errorf("%s: HostName() = %q, want %q", c.name, got, c.want)
		}
	}
}
