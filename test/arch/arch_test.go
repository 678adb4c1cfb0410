package arch_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "hostler.io/hostler"

// ours says which of our packages a package may import, in addition to its own children. A package
// that is not listed may import none. test and the packages below it may import all.
var ours = map[string][]string{
	"main":                   {"agent/cli"},
	"runtime":                {"internal/sanitize"},
	"runtime/cri":            {"internal/bounded", "internal/sanitize", "runtime", "runtime/cri/containerd", "runtime/cri/podlog", "runtime/local"},
	"runtime/cri/podlog":     {},
	"runtime/docker":         {"internal/sanitize", "runtime", "runtime/cri/containerd", "runtime/docker/compose", "runtime/docker/engine", "runtime/local", "runtime/unitclient"},
	"runtime/docker/compose": {"runtime"},
	"runtime/docker/engine":  {"internal/sanitize", "runtime", "runtime/local"},
	"runtime/podman":         {"internal/sanitize", "internal/trust", "runtime", "runtime/docker/compose", "runtime/docker/engine", "runtime/local"},
	"runtime/local":          {"internal/mounts", "internal/tree", "internal/trust", "runtime"},
	"runtime/runc":           {"internal/sanitize", "internal/tree", "internal/trust", "runtime", "runtime/local", "runtime/runc/program", "runtime/runc/root", "runtime/unitclient"},
	"runtime/runc/program":   {"internal/oom", "internal/trust"},
	"runtime/runc/root":      {},
	"runtime/unitclient":     {"internal/bounded", "internal/tree", "internal/trust"},
	"runtime/cri/containerd": {"runtime", "runtime/local"},
	"runtime/orphans":        {"runtime", "runtime/local", "runtime/runc"},
	"runtime/runtimetest":    {"internal/sanitize", "runtime", "test/kept"},

	"internal/atomicfile": {},
	"internal/bounded":    {},
	"internal/calendar":   {},
	"internal/caller":     {},
	"internal/field":      {},
	"internal/few":        {},
	"internal/hint":       {},
	"internal/mounts":     {},
	"internal/redirect":   {},
	"internal/tree":       {},
	"internal/account":    {},
	"internal/oom":        {},

	"shutdown":          {"internal/bounded", "runtime", "shutdown/drain", "shutdown/journal", "shutdown/plan"},
	"shutdown/plan":     {"internal/field", "internal/sanitize", "runtime"},
	"shutdown/journal":  {"internal/atomicfile", "internal/sanitize"},
	"shutdown/timeline": {"shutdown/journal"},
	"shutdown/restart":  {"internal/loop", "internal/mounts", "runtime", "shutdown/journal", "shutdown/plan"},
	"shutdown/drain":    {"internal/bounded", "runtime", "shutdown/journal", "shutdown/plan"},

	"gc":          {"runtime"},
	"gc/lastused": {"runtime", "gc"},
	"gc/meter":    {"gc", "internal/mounts", "internal/tree", "runtime"},
	"gc/podlogs":  {"gc", "internal/tree"},
	"gc/survey":   {"gc", "gc/fruitless", "gc/lastused", "internal/bounded", "runtime"},
	"gc/pace":     {"internal/bounded", "runtime"},
	"gc/runs":     {"gc", "gc/survey"},
	"gc/collect":  {"gc", "gc/lastused", "gc/pace", "gc/podlogs", "gc/runs", "gc/survey", "runtime"},
	"gc/history":  {"gc", "gc/runs"},

	"status":       {"internal/field", "runtime", "status/probe"},
	"status/probe": {"internal/mounts"},

	"systemd":             {"internal/bounded", "shutdown", "systemd/bus", "systemd/logindconf", "systemd/notify"},
	"systemd/bus":         {},
	"systemd/journald":    {},
	"systemd/logindconf":  {},
	"systemd/notify":      {},
	"systemd/systemdtest": {"systemd", "systemd/logindconf", "systemd/notify", "shutdown"},

	"internal/logtest":         {},
	"internal/trust/trusttest": {},
	"status/conditions":        {"internal/account", "internal/bounded", "internal/field", "internal/oom", "internal/sanitize", "internal/trust", "status"},
	"internal/listen":          {"internal/field", "internal/trust"},
	"internal/loop":            {},
	"internal/outbox":          {},
	"agent/owner":              {"internal/tree", "internal/trust", "shutdown/journal", "systemd"},
	"internal/sanitize":        {},
	"runtime/discovery":        {"internal/tree", "runtime", "runtime/cri", "runtime/docker", "runtime/local", "runtime/podman", "runtime/runc"},
	"status/gather":            {"runtime", "runtime/local", "shutdown", "status", "status/probe", "systemd"},
	"status/reboots":           {"shutdown/journal"},
	"status/report":            {"controlplane", "internal/bounded", "internal/loop", "shutdown", "shutdown/journal", "status", "status/probe", "status/reboots"},
	"status/pods":              {"controlplane", "internal/bounded", "internal/few", "internal/loop", "internal/sanitize", "runtime"},
	"agent/metrics":            {"controlplane", "internal/listen", "internal/loop", "status/reboots", "gc/runs", "shutdown", "status"},
	"internal/statefile":       {"internal/atomicfile"},
	"agent/config":             {"agent/reboot", "controlplane", "controlplane/etcd/endpoint", "gc", "internal/calendar", "internal/configfile", "internal/field", "internal/listen", "internal/trust", "runtime/runc/root", "shutdown/plan", "status", "status/conditions"},
	"internal/configfile":      {"internal/field", "internal/sanitize", "internal/trust"},
	"controlplane":             {"internal/bounded", "internal/sanitize"},
	"controlplane/store":       {"controlplane", "internal/bounded", "internal/sanitize"},
	"controlplane/slots":       {"controlplane", "controlplane/store", "internal/bounded", "internal/few", "internal/sanitize"},
	"controlplane/election":    {"controlplane/store", "internal/bounded"},

	"controlplane/server":                       {"controlplane", "controlplane/controllers/clones", "controlplane/controllers/eviction", "controlplane/controllers/executor", "controlplane/controllers/garbagecollector", "controlplane/controllers/heartbeats", "controlplane/controllers/lifecycle", "controlplane/controllers/podcache", "controlplane/controllers/reboots", "controlplane/election", "controlplane/etcd", "controlplane/kubernetes", "controlplane/objects", "controlplane/server/answer", "controlplane/server/config", "controlplane/server/fleetlock", "controlplane/server/metrics", "controlplane/slots", "controlplane/store", "internal/atomicfile", "internal/bounded", "internal/configfile", "internal/few", "internal/hint", "internal/listen", "internal/loop", "internal/sanitize", "internal/trust", "systemd/notify"},
	"controlplane/server/answer":                {"internal/loop"},
	"controlplane/server/config":                {"controlplane", "controlplane/controllers/clones", "controlplane/controllers/eviction", "controlplane/controllers/garbagecollector", "controlplane/controllers/heartbeats", "controlplane/controllers/lifecycle", "controlplane/controllers/reboots", "controlplane/etcd/endpoint", "controlplane/slots", "internal/configfile", "internal/listen"},
	"controlplane/server/fleetlock":             {"controlplane", "controlplane/controllers/reboots", "controlplane/slots", "internal/sanitize", "internal/trust"},
	"controlplane/server/metrics":               {"controlplane/server/answer"},
	"controlplane/controllers/clones":           {"controlplane", "controlplane/controllers/executor", "controlplane/store", "internal/few", "internal/loop"},
	"controlplane/controllers/heartbeats":       {"controlplane", "controlplane/controllers/executor", "controlplane/store", "internal/loop"},
	"controlplane/controllers/eviction":         {"controlplane", "controlplane/controllers/executor", "controlplane/controllers/podcache", "controlplane/store", "internal/loop"},
	"controlplane/controllers/garbagecollector": {"controlplane", "controlplane/controllers/executor", "controlplane/store", "internal/bounded", "internal/few", "internal/loop"},
	"controlplane/controllers/executor":         {"controlplane", "controlplane/store", "internal/loop"},
	"controlplane/controllers/lifecycle":        {"controlplane", "controlplane/controllers/executor", "controlplane/controllers/podcache", "controlplane/store", "internal/loop", "internal/sanitize"},
	"controlplane/controllers/reboots":          {"controlplane", "controlplane/controllers/executor", "controlplane/controllers/lifecycle", "controlplane/controllers/podcache", "controlplane/slots", "controlplane/store", "internal/bounded", "internal/few", "internal/loop", "internal/sanitize"},
	"controlplane/controllers/podcache":         {"controlplane/store", "internal/loop"},
	"controlplane/controllers/controllertest":   {},

	"controlplane/dial":             {"controlplane", "internal/trust"},
	"controlplane/embedded":         {"controlplane", "controlplane/objects", "controlplane/objects/memory", "internal/statefile"},
	"controlplane/etcd":             {"controlplane", "controlplane/dial", "controlplane/etcd/endpoint", "controlplane/objects", "controlplane/store", "internal/sanitize", "internal/trust"},
	"controlplane/etcd/endpoint":    {"internal/configfile", "internal/listen"},
	"controlplane/kubernetes":       {"controlplane", "controlplane/dial", "controlplane/store", "internal/account", "internal/oom", "internal/redirect", "internal/sanitize", "internal/trust"},
	"controlplane/objects":          {"controlplane", "controlplane/store"},
	"controlplane/plugin":           {"controlplane", "controlplane/objects", "controlplane/plugin/v1", "internal/sanitize", "internal/trust"},
	"controlplane/conformance":      {"controlplane", "internal/bounded"},
	"controlplane/controlplanetest": {"controlplane", "controlplane/conformance", "controlplane/faulttest", "controlplane/objects", "controlplane/objects/memory", "controlplane/objects/objectstest", "test/kept"},
	"controlplane/faulttest":        {"controlplane"},

	"controlplane/objects/memory":      {"controlplane", "controlplane/objects"},
	"controlplane/objects/objectstest": {"controlplane", "controlplane/faulttest", "controlplane/objects", "controlplane/objects/memory"},

	"controlplane/kubernetes/certificate": {"controlplane", "internal/atomicfile", "internal/trust"},

	"controlplane/plugin/v1":         {},
	"controlplane/plugin/plugintest": {"controlplane/plugin/v1"},

	"packaging/made":       {"agent/api", "agent/cli", "agent/config", "controlplane/server/config"},
	"packaging/made/write": {"packaging/made"},

	// An example of a plugin, as anybody could write it.
	"docs/examples/plugin-https": {"controlplane/plugin/v1"},

	"agent/open":     {"agent/config", "agent/reboot", "controlplane", "controlplane/embedded", "controlplane/etcd", "controlplane/etcd/endpoint", "controlplane/kubernetes", "controlplane/kubernetes/certificate", "controlplane/objects", "controlplane/plugin", "gc", "internal/listen", "internal/outbox", "internal/sanitize", "internal/statefile", "runtime/discovery", "runtime/local", "shutdown/plan", "status", "status/probe", "systemd", "systemd/journald"},
	"agent/inspect":  {"agent/api", "agent/config", "agent/doctor", "agent/open", "agent/owner", "controlplane", "controlplane/conformance", "controlplane/embedded", "controlplane/etcd", "controlplane/etcd/endpoint", "controlplane/kubernetes", "controlplane/kubernetes/certificate", "controlplane/plugin", "controlplane/server", "controlplane/server/config", "internal/bounded", "internal/listen", "internal/statefile", "internal/trust", "runtime", "runtime/discovery", "shutdown/journal", "status", "status/conditions", "status/gather", "status/probe", "systemd"},
	"agent/settings": {"agent/config", "agent/doctor", "agent/open", "status"},
	"agent/doctor":   {"agent/owner", "agent/rebooters", "controlplane", "controlplane/kubernetes/certificate", "controlplane/server/answer", "gc", "internal/bounded", "internal/few", "internal/loop", "internal/trust", "shutdown", "shutdown/journal", "shutdown/plan", "status", "systemd", "systemd/logindconf"},

	"agent/rebooters":   {"internal/bounded", "internal/tree", "internal/trust", "systemd"},
	"agent/fleet":       {"controlplane", "internal/hint", "internal/listen", "internal/sanitize"},
	"agent/selfdrain":   {"agent/maintenance", "internal/bounded", "internal/loop", "shutdown/journal"},
	"agent/reboot":      {"controlplane", "internal/bounded", "internal/calendar", "internal/few", "internal/hint", "internal/loop", "internal/redirect", "internal/sanitize", "internal/trust", "shutdown/journal", "status", "status/conditions"},
	"agent/maintenance": {"agent/owner", "controlplane", "gc", "internal/bounded", "internal/caller", "internal/hint", "internal/loop", "shutdown", "shutdown/journal", "shutdown/plan", "status/report"},

	"agent/api":                    {"agent/doctor", "agent/fleet", "agent/maintenance", "agent/owner", "agent/reboot", "agent/selfdrain", "controlplane/server/answer", "gc", "gc/history", "gc/runs", "internal/caller", "internal/hint", "internal/listen", "internal/loop", "internal/redirect", "shutdown", "shutdown/journal", "shutdown/plan", "status", "status/conditions", "status/reboots"},
	"agent/cli":                    {"agent", "agent/api", "agent/config", "agent/doctor", "agent/fleet", "agent/inspect", "agent/maintenance", "agent/open", "agent/owner", "agent/reboot", "agent/selfdrain", "controlplane", "controlplane/conformance", "controlplane/server", "controlplane/server/answer", "controlplane/server/config", "gc", "gc/history", "gc/runs", "internal/configfile", "internal/few", "internal/sanitize", "internal/trust", "runtime", "shutdown", "shutdown/journal", "shutdown/plan", "shutdown/timeline", "status", "status/reboots"},
	"agent":                        {"agent/api", "agent/backend", "agent/config", "agent/doctor", "agent/fleet", "agent/maintenance", "agent/metrics", "agent/open", "agent/owner", "agent/reboot", "agent/selfdrain", "agent/settings", "controlplane", "controlplane/embedded", "controlplane/kubernetes", "gc", "gc/collect", "gc/fruitless", "gc/history", "gc/lastused", "gc/meter", "gc/podlogs", "gc/runs", "gc/survey", "internal/bounded", "internal/hint", "internal/listen", "internal/loop", "internal/statefile", "internal/trust", "runtime", "runtime/discovery", "runtime/local", "runtime/orphans", "shutdown", "shutdown/journal", "shutdown/restart", "status", "status/conditions", "status/gather", "status/pods", "status/probe", "status/reboots", "status/report", "systemd", "systemd/notify"},
	"agent/backend":                {"agent/api", "agent/config", "agent/doctor", "agent/fleet", "agent/inspect", "agent/maintenance", "agent/metrics", "agent/open", "agent/owner", "agent/reboot", "agent/selfdrain", "agent/settings", "controlplane", "controlplane/etcd", "controlplane/kubernetes", "controlplane/kubernetes/certificate", "gc", "gc/collect", "gc/history", "gc/runs", "gc/survey", "internal/bounded", "internal/caller", "internal/hint", "internal/listen", "internal/loop", "internal/statefile", "runtime", "runtime/discovery", "shutdown", "shutdown/journal", "shutdown/plan", "shutdown/restart", "status", "status/conditions", "status/gather", "status/reboots", "status/report", "systemd"},
	"gc/fruitless":                 {"gc"},
	"internal/trust":               {},
	"controlplane/store/memory":    {"controlplane", "controlplane/faulttest", "controlplane/objects", "controlplane/store"},
	"controlplane/store/storetest": {"controlplane", "controlplane/store"},
}

// theirs says which packages may import a foreign package or its children, and why others may not.
var theirs = []struct {
	prefix   string
	packages []string
	reason   string
}{
	{"github.com/godbus/dbus", []string{"systemd", "systemd/bus", "systemd/systemdtest"}, "only systemd knows D-Bus"},
	{"github.com/coreos/go-systemd", []string{"systemd", "systemd/systemdtest"}, "only systemd knows systemd"},
	{"github.com/google/cadvisor", []string{"status/probe"}, "cadvisor hard-codes paths and is kept in one place"},
	{"github.com/moby/sys/mountinfo", []string{"internal/mounts", "runtime/runtimetest"}, "any user can make its lines long"},
	{"github.com/vishvananda/netlink", []string{"status/probe"}, "only the probe reads the network"},
	{"k8s.io/cri-api", []string{"runtime/cri"}, "only the adapter knows CRI"},
	{"github.com/containerd", []string{"runtime/cri", "runtime/cri/containerd", "runtime/docker", "runtime/docker/engine"}, "only adapters know containerd, which keeps Docker's images and whose error classes are Docker's"},
	{"github.com/moby/moby", []string{"runtime/docker", "runtime/docker/engine"}, "only the adapter knows Docker"},
	{"k8s.io/client-go", []string{"controlplane/kubernetes"}, "only the client of Kubernetes speaks to an API server"},
	{"google.golang.org/grpc", []string{"runtime/cri", "runtime/docker", "runtime/cri/containerd", "controlplane/etcd", "controlplane/plugin", "controlplane/plugin/v1", "controlplane/plugin/plugintest", "docs/examples/plugin-https"}, "only adapters speak gRPC"},
	{"go.etcd.io/etcd", []string{"controlplane/etcd"}, "only its store knows etcd"},
	{"google.golang.org/genproto", []string{"controlplane/plugin"}, "only a plugin answers with details that it defines"},
	{"github.com/bufbuild/protocompile", nil, "the protocol is compiled by a test, for what is checked in"},
	{"github.com/spf13", []string{"agent/cli", "packaging/made"}, "only the command line parses flags, and its man pages tell them"},
	{"github.com/prometheus/client_golang", []string{"agent/metrics", "controlplane/server/metrics"}, "packages report by values, these two turn them into metrics"},
	{"github.com/CycloneDX", []string{"packaging/made"}, "only packages have a bill of materials"},
	{"github.com/cpuguy83", []string{"packaging/made"}, "only packages have man pages"},
	{"github.com/opencontainers", []string{"runtime/runc"}, "only the adapter knows what runc and crun write"},
	{"github.com/mattn/go-runewidth", []string{"agent/cli"}, "only the command line lays out text for a terminal"},
	{"github.com/agnivade/levenshtein", []string{"internal/configfile", "agent/fleet", "shutdown/plan"}, "only keys of the configuration, names of hosts and labels are corrected"},
	{"os/exec", []string{"status/conditions", "agent/reboot", "runtime/runc/program"}, "the agent runs no commands but a person's checks and the command that reboots the host, and runc where a runtime is nothing else and has no daemon to be asked: it asks the kernel, the runtime and systemd"},
	{"testing", []string{"runtime/runtimetest", "systemd/systemdtest", "controlplane/controlplanetest", "controlplane/objects/objectstest", "controlplane/store/storetest", "controlplane/controllers/controllertest", "internal/trust/trusttest"}, "test code does not go into the binary"},
}

type pkg struct {
	ImportPath string
	Name       string
	Doc        string
	Imports    []string
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range packages(t) {
		pkg := folder(p)
		if strings.HasPrefix(pkg, "test") {
			continue
		}
		allowed, known := ours[pkg]
		if !known {
			t.Errorf("package %s is not on the map: add it to `ours` and to ARCHITECTURE.md", pkg)
		}
		for _, imported := range p.Imports {
			if mine, isOurs := strings.CutPrefix(imported, module+"/"); isOurs && !slices.Contains(allowed, mine) {
				t.Errorf("%s imports %s; it may import of ours only %v", pkg, mine, allowed)
			}
			for _, rule := range theirs {
				below := imported == rule.prefix || strings.HasPrefix(imported, rule.prefix+"/")
				if below && !slices.Contains(rule.packages, pkg) {
					t.Errorf("%s imports %s: %s", pkg, imported, rule.reason)
				}
			}
		}
	}
}

func TestTestCodeStaysOutOfTheBinary(t *testing.T) {
	for _, dep := range goList(t, "-deps", ".") {
		if base := path.Base(dep.ImportPath); strings.HasPrefix(dep.ImportPath, module) && (strings.HasSuffix(base, "test") || strings.HasPrefix(dep.ImportPath, module+"/test/")) {
			t.Errorf("the binary holds %s", dep.ImportPath)
		}
	}
}

func TestEveryRoomSaysWhatItOwns(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("package %s has no comment that says what it owns", p.ImportPath)
		}
	}
}

func packages(t *testing.T) []pkg {
	all := goList(t, "./...")
	if len(all) < 10 {
		t.Fatalf("go list finds %d packages, want all of hostler's", len(all))
	}
	return all
}

func goList(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Name,Doc,Imports"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func folder(p pkg) string {
	if p.ImportPath == module {
		return "main"
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}
