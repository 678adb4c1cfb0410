package probe

import (
	"cmp"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
)

// Machine has the properties that do not change while a host runs, except by hotplug. What a host
// lacks is zero or empty.
type Machine struct {
	HostName      string // see Reader.HostName
	MachineID     string // machine-id(5)
	SystemUUID    string // DMI product UUID, or its equivalent in a POWER device tree
	BootID        string // random(4): changes with every boot, but not with a soft-reboot
	KernelVersion string
	OSImage       string // PRETTY_NAME of os-release(5)
	Architecture  string // in the names of Go and container images: amd64, arm64

	CPUs        int // online logical CPUs
	MemoryBytes uint64
	SwapBytes   uint64

	HugePages []HugePages // by page size, smallest first; includes sizes without pages
	NUMANodes []NUMANode  // by ID; empty if the kernel has no NUMA

	// CgroupVersion is 2 for the unified hierarchy, 1 for the legacy and the hybrid hierarchy, 0 if
	// no cgroup filesystem is mounted.
	CgroupVersion int
}

// HugePages is the number of huge pages of one size that the kernel has reserved.
type HugePages struct {
	PageSizeBytes uint64 `json:"pageSizeBytes"`
	Pages         uint64 `json:"pages"`
}

// NUMANode is one node of the machine's topology.
type NUMANode struct {
	ID          int         `json:"id"`
	CPUs        []int       `json:"cpus"` // online logical CPUs, ascending; empty on a memory-only node
	MemoryBytes uint64      `json:"memoryBytes"`
	HugePages   []HugePages `json:"hugepages,omitempty"`
}

// Machine reads the machine's properties. Call it at the start and for rare updates, because it
// reads several files for each CPU. An error says what could not be read or parsed; the rest of the
// Machine is valid.
func (r *Reader) Machine() (Machine, error) {
	m := Machine{
		HostName:      r.HostName(),
		MachineID:     machineID(r.text("/etc/machine-id", "/var/lib/dbus/machine-id")),
		SystemUUID:    r.text("/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id", "/proc/device-tree/vm,uuid"),
		BootID:        r.text("/proc/sys/kernel/random/boot_id"),
		KernelVersion: r.text("/proc/sys/kernel/osrelease"),
		OSImage:       prettyName(r.text("/etc/os-release", "/usr/lib/os-release")),
		Architecture:  goruntime.GOARCH,
		CgroupVersion: r.cgroupVersion(),
	}

	var errs []error
	if info, err := r.proc.Meminfo(); err != nil {
		errs = append(errs, fmt.Errorf("read memory size: %w", err))
	} else {
		m.MemoryBytes = value(info.MemTotalBytes)
		m.SwapBytes = r.limitSwap(value(info.SwapTotalBytes))
	}
	if err := r.topology(&m); err != nil {
		errs = append(errs, err)
	}
	r.limitHugePages(m.HugePages)
	return m, errors.Join(errs...)
}

// HostName returns the kernel's host name. It returns "" if that is only a default of the kernel or
// of the operating system (DEFAULT_HOSTNAME of os-release(5)).
func (r *Reader) HostName() string {
	name := r.text("/proc/sys/kernel/hostname")
	fallback := osRelease(r.text("/etc/os-release", "/usr/lib/os-release"))["DEFAULT_HOSTNAME"]
	if name == "(none)" || name == fallback && r.text("/etc/hostname") != name {
		return ""
	}
	return name
}

// machineID returns "" for the text that systemd writes into an image before its first boot; see
// machine-id(5), "First Boot Semantics".
func machineID(text string) string {
	if text == "uninitialized" {
		return ""
	}
	return text
}

// prettyName returns PRETTY_NAME from a file in os-release(5) format, else NAME, else "Linux", the
// default of that manual page.
func prettyName(file string) string {
	fields := osRelease(file)
	return cmp.Or(fields["PRETTY_NAME"], fields["NAME"], "Linux")
}

// osRelease returns the fields of a file in os-release(5) format.
func osRelease(file string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(file) {
		key, val, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok {
			fields[key] = unquote(val)
		}
	}
	return fields
}

// unquote removes the shell quoting that os-release(5) allows: single or double quotes around the
// value, and backslashes before special characters.
func unquote(s string) string {
	if len(s) >= 2 && s[0] == s[len(s)-1] {
		switch s[0] {
		case '\'':
			return s[1 : len(s)-1]
		case '"':
			s = s[1 : len(s)-1]
		}
	}
	var out strings.Builder
	escaped := false
	for _, c := range []byte(s) {
		if c == '\\' && !escaped {
			escaped = true
			continue
		}
		escaped = false
		out.WriteByte(c)
	}
	return out.String()
}

func (r *Reader) findCgroupVersion() int {
	switch {
	case r.exists("/sys/fs/cgroup/cgroup.controllers"):
		return 2
	case r.exists("/sys/fs/cgroup/memory"), r.exists("/sys/fs/cgroup/pids"), r.exists("/sys/fs/cgroup/systemd"):
		return 1
	default:
		return 0
	}
}

func value(p *uint64) uint64 {
	if p == nil {
		return 0
	}
	return *p
}
