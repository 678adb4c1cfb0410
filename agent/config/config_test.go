package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/gc"
)

func TestWithoutConfigurationCollectionGoesByItsDefaults(t *testing.T) {
	got, err := config.Default().GCPolicy()
	if err != nil {
		t.Fatal(err)
	}
	if want := gc.DefaultPolicy(); got.Containers != want.Containers {
		t.Errorf("GCPolicy() = %+v, want %+v", got.Containers, want.Containers)
	}
}

func TestFaultsNameFileLineAndField(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"an unknown section":                      {"imagesGC: {}\n", "f.yaml:1: imagesGC: unknown field; did you mean imageGC?"},
		"an unknown field":                        {"lease:\n  ttl: 3s\n", "f.yaml:2: lease.ttl: unknown field; known here: enabled, duration, renewInterval"},
		"a duration without a unit":               {"lease:\n  duration: 40\n", `f.yaml:2: lease.duration: "40" is not a duration; write it with its unit, such as 90s or 5m`},
		"a negative duration":                     {"shutdown: {gracePeriod: -1s}\n", "f.yaml:1: shutdown.gracePeriod: -1s is negative"},
		"a number where a word is wanted":         {"imageGC: {enabled: 1}\n", `f.yaml:1: imageGC.enabled: "1" is none of auto, true, false`},
		"a word where a number is wanted":         {"node: {maxPods: many}\n", `f.yaml:1: node.maxPods: "many" is not a whole number`},
		"a quoted number":                         {"node: {maxPods: \"5\"}\n", `f.yaml:1: node.maxPods: "5" stands in quotes, which make it a text; write 5 without them`},
		"a word where true or false is wanted":    {"node: {takeover: 1}\n", `f.yaml:1: node.takeover: "1" is neither true nor false`},
		"a list where a map is wanted":            {"node:\n  - a\n", "f.yaml:2: node: must be a map of fields"},
		"a map where a list is wanted":            {"imageGC: {keep: {a: b}}\n", "f.yaml:1: imageGC.keep: must be a list"},
		"a key set twice":                         {"node:\n  name: a\n  name: b\n", "f.yaml:3: node.name: set twice in this file"},
		"broken YAML":                             {"node: {\n", "f.yaml:1: not valid YAML: what begins with { must end with }"},
		"two documents":                           {"node: {}\n---\nnode: {}\n", "f.yaml:2: not valid YAML: more than one YAML document in a file"},
		"an alias that holds itself":              {"node: &a\n  labels: *a\n", "f.yaml:2: node.labels: YAML aliases are not supported; write the value out"},
		"a node name that is no DNS subdomain":    {"node: {name: Host_1}\n", `f.yaml:1: node.name: "Host_1" is not a DNS subdomain`},
		"a label that is none":                    {"node: {labels: {a b: c}}\n", "f.yaml:1: node.labels.a b: not a label"},
		"a taint with an unknown effect":          {"node:\n  taints:\n  - key: a\n    effect: Never\n", `f.yaml:4: node.taints[0].effect: "Never" is none of NoSchedule, PreferNoSchedule, NoExecute`},
		"three internal addresses":                {"node: {address: {internal: [eth0, eth1, eth2]}}\n", "f.yaml:1: node.address.internal: 3 values; at most one for each address family"},
		"two internal addresses of one family":    {"node: {address: {internal: [10.0.0.1, 10.0.0.2]}}\n", "f.yaml:1: node.address.internal: two of family IPv4; at most one for each"},
		"an internal address with blanks":         {"node: {address: {internal: [\"10.0.0.0/8 \"]}}\n", `f.yaml:1: node.address.internal[0]: "10.0.0.0/8 " has blanks around it`},
		"an internal address on the second line":  {"node:\n  address:\n    internal:\n    - eth0\n    - fe80::1%eth0\n", "f.yaml:5: node.address.internal[1]: fe80::1%eth0 is loopback, link-local, multicast or unspecified"},
		"an internal network with host bits":      {"node: {address: {internal: [10.0.0.5/24]}}\n", "f.yaml:1: node.address.internal[0]: 10.0.0.5/24 is an address within 10.0.0.0/24; write 10.0.0.5 or 10.0.0.0/24"},
		"an external address that is none":        {"node: {address: {external: [here]}}\n", `f.yaml:1: node.address.external[0]: "here" is not an IP address`},
		"half a byte of a threshold":              {"pressure: {memoryAvailable: 500m}\n", `f.yaml:1: pressure.memoryAvailable: "500m" is a number of thousandths, as CPUs alone are counted; did you mean 500M, 500Mi or 500?`},
		"half a byte that is reserved":            {"node:\n  reserved:\n    cpu: 500m\n    memory: 500m\n", `f.yaml:4: node.reserved.memory: "500m" is a number of thousandths`},
		"half a process":                          {"node: {reserved: {pid: 500m}}\n", `f.yaml:1: node.reserved.pid: "500m" is a number of thousandths`},
		"a disk in millionths":                    {"node: {reserved: {ephemeral-storage: 5u}}\n", `f.yaml:1: node.reserved.ephemeral-storage: "5u" is a number of millionths`},
		"a quantity that is none":                 {"node: {reserved: {memory: lots}}\n", `f.yaml:1: node.reserved.memory: "lots" is not a quantity; write it as 500m, 2 or 1Gi`},
		"a threshold above all there is":          {"pressure: {nodefsAvailable: 101%}\n", `f.yaml:1: pressure.nodefsAvailable: "101%" is not a percentage from 0% to 100%`},
		"a threshold that is no number":           {"pressure: {nodefsAvailable: NaN%}\n", `f.yaml:1: pressure.nodefsAvailable: "NaN%" is not a percentage from 0% to 100%`},
		"a renewal too rare for its lease":        {"lease:\n  renewInterval: 20s\n", "f.yaml:2: lease.renewInterval: 20s is not above 0 and below half of lease.duration (40s, its default): one"},
		"a lease of half seconds":                 {"lease: {duration: 40500ms}\n", "f.yaml:1: lease.duration: 40.5s is not a number of whole seconds"},
		"an unknown control plane":                {"controlPlane: {type: etch}\n", `f.yaml:1: controlPlane.type: "etch" is not a control plane that this version has; use one of embedded, kubernetes, etcd, plugin`},
		"etcd without a member":                   {"controlPlane: {type: etcd}\n", "f.yaml:1: controlPlane.type: etcd needs to know the cluster: name its members in controlPlane.etcd.endpoints"},
		"etcd with another control plane":         {"controlPlane:\n  etcd:\n    endpoints: [https://e:2379]\n", "f.yaml:3: controlPlane.etcd.endpoints: is of no use with control plane embedded; set controlPlane.type: etcd"},
		"etcd's prefix with another one":          {"controlPlane: {etcd: {prefix: /fleet}}\n", "f.yaml:1: controlPlane.etcd.prefix: is of no use with control plane embedded; set controlPlane.type: etcd"},
		"plain http to another host":              {"controlPlane:\n  type: etcd\n  etcd:\n    endpoints:\n    - https://e1:2379\n    - http://e2:2379\n", `f.yaml:6: controlPlane.etcd.endpoints[1]: "http://e2:2379" sends everything, passwords too, where others can read and change it: use https, or set controlPlane.etcd.insecure: true`},
		"a member of an unknown scheme":           {"controlPlane: {type: etcd, etcd: {endpoints: [e1:2379]}}\n", `f.yaml:1: controlPlane.etcd.endpoints[0]: "e1:2379" is no endpoint: write it as https://HOST:2379`},
		"a member without a host":                 {"controlPlane: {type: etcd, etcd: {endpoints: [\"https://:2379\"]}}\n", `f.yaml:1: controlPlane.etcd.endpoints[0]: "https://:2379" names no host`},
		"a member that is named twice":            {"controlPlane: {type: etcd, etcd: {endpoints: [https://e, https://e]}}\n", `f.yaml:1: controlPlane.etcd.endpoints[1]: "https://e" is named twice`},
		"a prefix without its slash":              {"controlPlane: {type: etcd, etcd: {endpoints: [https://e], prefix: fleet}}\n", `f.yaml:1: controlPlane.etcd.prefix: "fleet" is no prefix: it begins with / and does not end with one`},
		"a client certificate without its key":    {"controlPlane: {type: etcd, etcd: {endpoints: [https://e], tls: {certificate: /c.crt}}}\n", "f.yaml:1: controlPlane.etcd.tls: a certificate needs its key, and a key its certificate"},
		"a user without a password":               {"controlPlane: {type: etcd, etcd: {endpoints: [https://e], username: n}}\n", "f.yaml:1: controlPlane.etcd: a username needs its passwordFile, and a passwordFile its username"},
		"a password at a relative path":           {"controlPlane: {type: etcd, etcd: {endpoints: [https://e], username: n, passwordFile: p}}\n", `f.yaml:1: controlPlane.etcd.passwordFile: "p" is not an absolute path`},
		"a plugin that nobody names":              {"controlPlane: {type: plugin}\n", "f.yaml:1: controlPlane.type: plugin needs to know which: name the socket that it serves as controlPlane.plugin.socket, or have hostler run it as controlPlane.plugin.command"},
		"a plugin that two run":                   {"controlPlane:\n  type: plugin\n  plugin: {socket: /run/p.sock, command: [/bin/p]}\n", "f.yaml:3: controlPlane.plugin.command: is given beside controlPlane.plugin.socket: either somebody else runs the plugin, or hostler does"},
		"a plugin of no use":                      {"controlPlane: {plugin: {socket: /run/p.sock}}\n", "f.yaml:1: controlPlane.plugin.socket: is of no use with control plane embedded; set controlPlane.type: plugin"},
		"a plugin's socket somewhere":             {"controlPlane: {type: plugin, plugin: {socket: p.sock}}\n", `f.yaml:1: controlPlane.plugin.socket: "p.sock" is not an absolute path of at most 107 bytes`},
		"a plugin's command as a shell takes it":  {"controlPlane: {type: plugin, plugin: {command: /bin/p --fast}}\n", `f.yaml:1: controlPlane.plugin.command: "/bin/p --fast" holds a blank; write each argument by itself: [/path/to/plugin, --argument]`},
		"a plugin's command that is looked for":   {"controlPlane: {type: plugin, plugin: {command: [p]}}\n", `f.yaml:1: controlPlane.plugin.command: "p" is not the absolute path of an executable`},
		"no room for a plugin's socket":           {"controlPlane: {type: plugin, plugin: {command: /bin/p}}\napi: {socket: /" + strings.Repeat("r", 90) + "/s}\n", `f.yaml:2: api.socket: "/` + strings.Repeat("r", 90) + `/s" leaves no room beside it for the plugin's socket: it may have 88 bytes`},
		"a restart that is neither":               {"shutdown:\n  restartAfterBoot: always\n", `f.yaml:2: shutdown.restartAfterBoot: "always" is neither auto nor never`},
		"an unknown runtime type":                 {"runtimes: [{type: lxc, endpoint: /a}]\n", `f.yaml:1: runtimes[0].type: "lxc" is not a runtime type that this version has; use cri or docker or podman or runc`},
		"a runtime over the network":              {"runtimes: [{type: cri, endpoint: \"tcp://1.2.3.4:5\"}]\n", `f.yaml:1: runtimes[0].endpoint: "tcp://1.2.3.4:5" is not the path of a unix socket`},
		"a socket of runc's":                      {"runtimes: [{type: runc, endpoint: \"unix:///run/runc\"}]\n", `f.yaml:1: runtimes[0].endpoint: "unix:///run/runc" names a socket, and runc has none`},
		"a state root of containerd's":            {"runtimes: [{type: runc, endpoint: /run/containerd/runc/k8s.io}]\n", `f.yaml:1: runtimes[0].endpoint: "/run/containerd/runc/k8s.io": what is below /run/containerd is containerd's; use type: cri`},
		"a state root listed twice":               {"runtimes: [{type: runc, endpoint: /run/runc}, {type: runc, endpoint: /run/runc/}]\n", "f.yaml:1: runtimes[1].endpoint: /run/runc is listed twice"},
		"runtimes that are neither":               {"runtimes: all\n", "f.yaml:1: runtimes: must be auto or a list of {type, endpoint}"},
		"a service that is none":                  {"shutdown:\n  enabled: true\n  stopFirst: [k3s]\n", `f.yaml:3: shutdown.stopFirst[0]: "k3s" is not the name of a service, such as k3s.service`},
		"hostler before the pods":                 {"shutdown: {enabled: true, stopFirst: [hostler.service]}\n", "f.yaml:1: shutdown.stopFirst[0]: hostler.service is hostler itself"},
		"a service listed twice":                  {"shutdown: {enabled: true, stopFirst: [k3s.service, k3s.service]}\n", "f.yaml:1: shutdown.stopFirst[1]: k3s.service is named twice"},
		"a service to stop for another owner":     {"shutdown:\n  stopFirst: [k3s.service]\n", "f.yaml:2: shutdown.stopFirst: needs shutdown.enabled: true: with auto a kubelet may be left to guard the shutdown"},
		"critical not below the total":            {"shutdown:\n  gracePeriod: 10s\n  gracePeriodCriticalPods: 10s\n", "f.yaml:3: shutdown.gracePeriodCriticalPods: 10s is a part of gracePeriod (10s) and must be shorter"},
		"priorities beside periods":               {"shutdown:\n  gracePeriod: 30s\n  byPriority: [{priority: 1, gracePeriod: 2s}]\n", "f.yaml:3: shutdown.byPriority: excludes gracePeriod and gracePeriodCriticalPods"},
		"a priority listed twice":                 {"shutdown: {byPriority: [{priority: 1, gracePeriod: 2s}, {priority: 1, gracePeriod: 2s}]}\n", "f.yaml:1: shutdown.byPriority[1].priority: 1 stands in byPriority[0] already"},
		"a critical rule that matches everything": {"shutdown: {critical: [{}]}\n", "f.yaml:1: shutdown.critical[0]: an empty rule would match every pod"},
		"thresholds the wrong way round":          {"imageGC:\n  highThresholdPercent: 60\n", "f.yaml:2: imageGC.highThresholdPercent: 60 is not above imageGC.lowThresholdPercent (80, its default)"},
		"a low threshold above the default":       {"imageGC:\n  lowThresholdPercent: 90\n", "f.yaml:2: imageGC.lowThresholdPercent: 90 is not below imageGC.highThresholdPercent (85, its default)"},
		"a high threshold of nothing":             {"imageGC:\n  highThresholdPercent: 0\n", "f.yaml:2: imageGC.highThresholdPercent: 0 is not a percentage from 1 to 100"},
		"a section of another case":               {"lease: {}\nimagegc:\n  interval: 5m\n", "f.yaml:2: imagegc: unknown field; did you mean imageGC?"},
		"a field whose value begins a line lower": {"shutdown:\n  gracePeriod: 30s\n  byPriority:\n  - {priority: 1, gracePeriod: 2s}\n", "f.yaml:3: shutdown.byPriority: excludes gracePeriod"},
		"a phase without anything":                {"shutdown:\n  byPriority:\n  - {}\n", "f.yaml:3: shutdown.byPriority[0]: has no gracePeriod; write {priority: 0, gracePeriod: 30s}"},
		"days in a duration":                      {"lease: {duration: 2d}\n", `f.yaml:1: lease.duration: "2d" is not a duration: its units are h, m, s and ms; did you mean 48h?`},
		"minutes by another name":                 {"lease: {duration: 5min}\n", `f.yaml:1: lease.duration: "5min" is not a duration: its units are h, m, s and ms; did you mean 5m?`},
		"a blank in a duration":                   {"lease: {duration: 1h 30 m}\n", `f.yaml:1: lease.duration: "1h 30 m" is not a duration: its units are h, m, s and ms; did you mean 1h30m?`},
		"a unit that is none":                     {"lease: {duration: 5x}\n", `f.yaml:1: lease.duration: "5x" is not a duration: there is no unit x; its units are h, m, s and ms`},
		"a duration that is too long to count":    {"lease: {duration: 9999999h}\n", "f.yaml:1: lease.duration: 9999999h is too long to count; the longest is 2562047h"},
		"an empty duration":                       {"lease: {duration: ''}\n", "f.yaml:1: lease.duration: is empty; write a duration with its unit"},
		"a list where a duration is wanted":       {"lease: {duration: [5s]}\n", "f.yaml:1: lease.duration: must be a single value"},
		"a number that is too large":              {"node: {maxPods: 99999999999999999999}\n", "f.yaml:1: node.maxPods: 99999999999999999999 is too large a number"},
		"a number with a percent sign":            {"imageGC: {highThresholdPercent: 85%}\n", `f.yaml:1: imageGC.highThresholdPercent: "85%" is not a whole number; write 85, without the percent sign`},
		"a number that is not decimal":            {"node: {maxPods: 0x55}\n", `f.yaml:1: node.maxPods: "0x55" is not written as a number is here; write 85`},
		"true in quotes":                          {"node: {takeover: 'true'}\n", `f.yaml:1: node.takeover: "true" stands in quotes, which make it a text; write true without them`},
		"bytes in a quantity":                     {"node: {reserved: {memory: 1GB}}\n", `f.yaml:1: node.reserved.memory: "1GB" is not a quantity; did you mean 1G?`},
		"a blank in a quantity":                   {"node: {reserved: {memory: 1 Gi}}\n", `f.yaml:1: node.reserved.memory: "1 Gi" is not a quantity; did you mean 1Gi?`},
		"a quantity in capitals":                  {"node: {reserved: {memory: 10KIB}}\n", `f.yaml:1: node.reserved.memory: "10KIB" is not a quantity; did you mean 10Ki?`},
		"an endpoint alone":                       {"runtimes: unix:///run/x.sock\n", `f.yaml:1: runtimes: must be auto or a list; write [{type: cri, endpoint: "unix:///run/x.sock"}]`},
		"a list of endpoints":                     {"runtimes:\n- {type: cri, endpoint: /run/y.sock}\n- unix:///run/x.sock\n", `f.yaml:3: runtimes[1]: must be a map of fields; write {type: cri, endpoint: "unix:///run/x.sock"}`},
		"bytes in a threshold":                    {"pressure: {memoryAvailable: 100MB}\n", `f.yaml:1: pressure.memoryAvailable: "100MB" is neither a percentage, such as 10%, nor a quantity; did you mean 100M?`},
		"more memory than can be counted":         {"node: {reserved: {memory: 99999999999Gi}}\n", "f.yaml:1: node.reserved.memory: 99999999999Gi is too large to count; it is to be less than 8Ei"},
		"a threshold below nothing":               {"pressure: {memoryAvailable: -1Mi}\n", "f.yaml:1: pressure.memoryAvailable: -1Mi is negative"},
		"no blank behind a colon":                 {"imageGC:\n  interval:5m\n", `f.yaml:2: imageGC: must be a map of fields; write "interval: 5m", with a blank behind the colon`},
		"a tab":                                   {"node:\n\tname: a\n", "f.yaml:2: not valid YAML: the line begins with a tab; indent with blanks"},
		"a line that is indented too far":         {"node:\n  name: a\n   maxPods: 5\n", "f.yaml:3: not valid YAML: this line does not fit to those above it"},
		"a line that is not indented enough":      {"node:\n  name: a\n maxPods: 5\n", "f.yaml:3: not valid YAML: this line does not fit to those above it"},
		"a key without a colon":                   {"node:\n  maxPods: 5\n  name a\nlease: {}\n", "f.yaml:3: not valid YAML: a key has no colon behind it"},
		"a colon within a value":                  {"node:\n  name: a: b\n", `f.yaml:2: not valid YAML: a value with ": " in it must stand in quotes`},
		"a star that is not in quotes":            {"imageGC:\n  keep:\n  - nginx\n  - */pause\n", "f.yaml:4: not valid YAML: a value that begins with * must stand in quotes"},
		"no blank behind a dash":                  {"imageGC:\n  keep:\n  -nginx\n", "f.yaml:3: not valid YAML: an entry of a list needs a blank behind its dash"},
		"a quote that is not closed":              {"node:\n  name: \"a\n  maxPods: 5\n", "f.yaml:2: not valid YAML: a quote is not closed"},
		"a list that is not closed":               {"imageGC:\n  keep: [a,\n    b\nnode: {}\n", "f.yaml:2: not valid YAML: a list that begins with [ must end with ]"},
		"a fault behind what takes several lines": {"imageGC:\n  keep: [a,\n    b]\n   x: y\n", "f.yaml:4: not valid YAML: this line does not fit"},
		"a keep pattern that is no reference":     {"imageGC:\n  keep:\n  - a\n  - docker://b\n", `f.yaml:4: imageGC.keep[1]: keep pattern "docker://b": is not an image reference`},
		"a keep pattern that matches nothing":     {"imageGC:\n  keep:\n  - Nginx:1.*\n", `f.yaml:3: imageGC.keep[0]: keep pattern "Nginx:1.*": has capitals in a repository, which are never there; write "nginx:1.*"`},
		"a total below the default of its part":   {"shutdown:\n  gracePeriod: 5s\n", "f.yaml:1: shutdown.gracePeriodCriticalPods: 10s, its default, is a part of gracePeriod (5s)"},
		"a maximum age below the minimum":         {"imageGC: {maximumAge: 1m}\n", "f.yaml:1: imageGC.maximumAge: 1m is not above imageGC.minimumAge (2m, its default)"},
		"a limit below no limit":                  {"containerGC: {maxContainers: -2}\n", "f.yaml:1: containerGC.maxContainers: -2 is neither -1 nor 0 nor above"},
		"a relative state folder":                 {"state: {directory: here}\n", `f.yaml:1: state.directory: "here" is not an absolute path`},
		"metrics beyond loopback":                 {"metrics: {listen: \"0.0.0.0:9754\"}\n", `f.yaml:1: metrics.listen: "0.0.0.0:9754" is not a loopback address with a port`},
		"metrics on a port that is none":          {"metrics: {listen: \"127.0.0.1:99999\"}\n", `f.yaml:1: metrics.listen: "127.0.0.1:99999" is not a loopback address with a port`},
		"a lease beyond what its field holds":     {"lease: {duration: 2147483648s}\n", "f.yaml:1: lease.duration: 596523h14m8s is not a number of whole seconds that a Lease can hold"},
		"a runtime in a folder":                   {"runtimes: [{type: cri, endpoint: /run/x/}]\n", `f.yaml:1: runtimes[0].endpoint: "/run/x/" is not the path of a unix socket`},
		"a runtime listed twice in two ways":      {"runtimes:\n- {type: cri, endpoint: /run/x.sock}\n- {type: cri, endpoint: unix:///run/y/../x.sock}\n", "f.yaml:3: runtimes[1].endpoint: /run/x.sock is listed twice"},
		"a threshold that is too large":           {"node: {name: a}\npressure:\n  memoryAvailable: 9e30\n", `f.yaml:3: pressure.memoryAvailable: threshold "9e30" is too large`},
		"stalls of a kind that is none":           {"pressure:\n  psi:\n    io:\n      kind: most\n      window: 10s\n      threshold: 20%\n", `f.yaml:4: pressure.psi.io.kind: "most" is neither some nor full`},
		"stalls of the CPUs that are full":        {"pressure:\n  psi:\n    cpu: {kind: full, window: 10s, threshold: 20%}\n", "f.yaml:3: pressure.psi.cpu.kind: full has no meaning for the CPUs of a host"},
		"stalls of no kind":                       {"pressure:\n  psi:\n    io: {window: 10s, threshold: 20%}\n", "f.yaml:3: pressure.psi.io.kind: is missing; write some or full"},
		"stalls over a time that is none":         {"pressure:\n  psi:\n    io:\n      kind: some\n      threshold: 20%\n      window: 30s\n", "f.yaml:6: pressure.psi.io.window: 30s is no time that the kernel averages over; write 10s, 60s or 5m"},
		"stalls without a time":                   {"pressure: {psi: {io: {kind: full, threshold: 20%}}}\n", "f.yaml:1: pressure.psi.io.window: is missing; write 10s, 60s or 5m"},
		"stalls without a threshold":              {"pressure:\n  psi:\n    memory: {kind: full, window: 60s}\n", "f.yaml:3: pressure.psi.memory.threshold: is missing; write a percentage, such as 20%"},
		"stalls of an amount":                     {"pressure:\n  psi:\n    memory: {kind: full, window: 60s, threshold: 20}\n", "f.yaml:3: pressure.psi.memory.threshold: 20 is not a percentage; write it like 20%"},
		"stalls that are always there":            {"pressure:\n  psi:\n    memory:\n      kind: full\n      window: 60s\n      threshold: 0%\n", "f.yaml:6: pressure.psi.memory.threshold: 0% does not lie between 0% and 100%"},
		"stalls that never are":                   {"pressure:\n  psi:\n    memory: {kind: full, window: 60s, threshold: 100%}\n", "f.yaml:3: pressure.psi.memory.threshold: 100% does not lie between 0% and 100%"},
		"stalls of a part that is no number":      {"pressure:\n  psi:\n    memory: {kind: full, window: 60s, threshold: much%}\n", `f.yaml:3: pressure.psi.memory.threshold: threshold "much%" is not a percentage`},
		"stalls for something else":               {"pressure: {psi: {disk: {}}}\n", "f.yaml:1: pressure.psi.disk: unknown field; known here: cpu, memory, io"},
		"a label that is hostler's":               {"node:\n  name: a\n  labels: {kubernetes.io/os: bsd}\n", "f.yaml:3: node.labels: kubernetes.io/os is set by hostler itself"},
		"a cloud provider that is none":           {"node: {cloudProvider: aws}\n", `f.yaml:1: node.cloudProvider: "aws" is neither none nor external`},
		"a cloud that has no way in":              {"node: {cloudProvider: external}\n", "f.yaml:1: node.cloudProvider: external waits for ever"},
		"a Node that nobody else can create":      {"node:\n  register: false\n", "f.yaml:2: node.register: false waits for ever"},
		"a provider ID of two words":              {"node: {providerID: a b}\n", `f.yaml:1: node.providerID: "a b" holds a blank`},
		"a relative folder of conditions":         {"conditions:\n  directory: here\n", `f.yaml:2: conditions.directory: "here" is not an absolute path`},
		"conditions all the time":                 {"conditions: {interval: 0s}\n", "f.yaml:1: conditions.interval: 0s is shorter than 1s"},
		"an unknown log level":                    {"log: {level: loud}\n", `f.yaml:1: log.level: "loud" is none of debug, info, warn, error`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("f.yaml", []byte(c.in))
			var faults config.Faults
			if !errors.As(err, &faults) || !strings.HasPrefix(faults[0].String(), c.want) {
				t.Errorf("Parse(%q) = %v, want a fault that begins %q", c.in, err, c.want)
			}
		})
	}
}

// The labels that Kubernetes' admission plug-in NodeRestriction refuses.
func TestLabelsThatANodeMayNotSetAreNamed(t *testing.T) {
	for key, refused := range map[string]bool{
		"rack":                                     false,
		"example.com/rack":                         false,
		"notkubernetes.io/rack":                    false,
		"topology.kubernetes.io/zone":              false,
		"topology.kubernetes.io/rack":              true,
		"failure-domain.beta.kubernetes.io/region": false,
		"beta.kubernetes.io/instance-type":         false,
		"node.kubernetes.io/instance-type":         false,
		"gpu.node.kubernetes.io/model":             false,
		"kubelet.kubernetes.io/any":                false,
		"node-role.kubernetes.io/worker":           true,
		"kubernetes.io/role":                       true,
		"k8s.io/role":                              true,
		"sigs.k8s.io/x":                            true,
		"node-restriction.kubernetes.io/x":         true,
		"a.node-restriction.kubernetes.io/x":       true,
	} {
		for _, plane := range []string{"kubernetes", "embedded"} {
			_, err := config.Parse("f.yaml", []byte("controlPlane: {type: "+plane+"}\nnode:\n  labels:\n    "+key+": x\n"))
			named := err != nil && strings.Contains(err.Error(), "f.yaml:4: node.labels."+key+": a node may not give itself this label")
			if want := refused && plane == "kubernetes"; named != want {
				t.Errorf("on %s, Parse() of label %s = %v, want it refused: %t", plane, key, err, want)
			}
		}
	}
}

func TestEveryFaultIsReportedInOrder(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte("lease:\n  ttl: 1\nnode:\n  maxPods: x\n"))
	want := "f.yaml:2: lease.ttl: unknown field; known here: enabled, duration, renewInterval\n" +
		`f.yaml:4: node.maxPods: "x" is not a whole number`
	if err == nil || err.Error() != want {
		t.Errorf("Parse() = %v, want %s", err, want)
	}
}

func TestDropInsMergeMapsAndReplaceLists(t *testing.T) {
	dir := t.TempDir()
	file, dropIns := filepath.Join(dir, "hostler.yaml"), filepath.Join(dir, "conf.d")
	write(t, file, "node:\n  labels: {a: '1', b: '1'}\nimageGC: {keep: [x, y], highThresholdPercent: 90}\n")
	write(t, filepath.Join(dropIns, "20-b.yaml"), "node: {labels: {b: '3'}}\n")
	write(t, filepath.Join(dropIns, "10-a.yaml"), "node: {labels: {b: '2', c: '2'}}\nimageGC: {keep: [z]}\n")
	write(t, filepath.Join(dropIns, "30-c.yml.bak"), "not: read\n")
	write(t, filepath.Join(dropIns, ".hidden.yaml"), "not: read\n")
	write(t, filepath.Join(dropIns, ".hidden.yml"), "not: read\n")
	write(t, filepath.Join(dropIns, "40-d.yml"), "not: read\n")
	write(t, filepath.Join(dropIns, "50-e.YAML"), "not: read\n")
	write(t, filepath.Join(dir, "hostler.yml"), "not: read\n")

	got, err := config.Load(file, dropIns)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"a": "1", "b": "3", "c": "2"}; !reflect.DeepEqual(got.Node.Labels, want) {
		t.Errorf("labels = %v, want %v", got.Node.Labels, want)
	}
	if want := []string{"z"}; !reflect.DeepEqual(got.ImageGC.Keep, want) || got.ImageGC.HighThresholdPercent != 90 {
		t.Errorf("imageGC = %+v, want keep %v and a high threshold of 90", got.ImageGC, want)
	}
	if want := []string{filepath.Join(dir, "hostler.yml"), filepath.Join(dropIns, "40-d.yml"), filepath.Join(dropIns, "50-e.YAML")}; !reflect.DeepEqual(got.Ignored, want) {
		t.Errorf("Ignored = %v, want %v", got.Ignored, want)
	}
	if want := 3; len(got.Files) != want {
		t.Errorf("Files = %v, want %d of them", got.Files, want)
	}
}

func TestAFaultInADropInNamesTheDropIn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hostler.yaml")
	write(t, file, "imageGC: {lowThresholdPercent: 70}\n")
	write(t, filepath.Join(dir, "conf.d", "x.yaml"), "\nimageGC:\n  highThresholdPercent: 60\n")
	_, err := config.Load(file, filepath.Join(dir, "conf.d"))
	if want := file + ":1: imageGC.lowThresholdPercent: 70 is not below imageGC.highThresholdPercent (60)"; err == nil || err.Error() != want {
		t.Errorf("Load() = %v, want %s", err, want)
	}
}

func TestNoFileAtAllIsAWorkingConfiguration(t *testing.T) {
	got, err := config.Load("", filepath.Join(t.TempDir(), "missing"))
	if err != nil || !reflect.DeepEqual(got.Config, config.Default()) {
		t.Errorf("Load() = %+v, %v, want the defaults", got.Config, err)
	}
}

func TestANamedFileMustBeThere(t *testing.T) {
	if _, err := config.Load(filepath.Join(t.TempDir(), "missing.yaml"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load() = %v, want that the file does not exist", err)
	}
}

func TestWhatIsPrintedReadsBackTheSame(t *testing.T) {
	documented, err := config.Documented()
	if err != nil {
		t.Fatal(err)
	}
	changed := config.Default()
	changed.Node.Taints = []config.Taint{{Key: "a", Effect: "NoSchedule"}}
	changed.Runtimes = config.Runtimes{List: []config.Runtime{{Type: "cri", Endpoint: "/run/x.sock"}}}
	changed.Lease.Duration = config.Duration(90 * time.Second)
	changed.ImageGC.Enabled = config.Off
	changed.Pressure.PSI.Memory = config.Stall{Kind: "full", Window: config.Duration(time.Minute), Threshold: "20%"}
	byPriority := config.Default()
	byPriority.Shutdown.GracePeriod, byPriority.Shutdown.GracePeriodCriticalPods = 0, 0
	byPriority.Shutdown.ByPriority = []config.PriorityGrace{{Priority: 7, GracePeriod: config.Duration(time.Minute)}}
	off := config.Default()
	off.Shutdown.GracePeriod, off.Shutdown.GracePeriodCriticalPods = 0, 0
	for name, c := range map[string]struct {
		want config.Config
		text []byte
	}{
		"the documented defaults": {config.Default(), documented},
		"a changed configuration": {changed, must(changed.YAML())},
		"phases by priority":      {byPriority, must(byPriority.YAML())},
		"no shutdown guard":       {off, []byte("shutdown: {gracePeriod: 0s}")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.Parse("f.yaml", c.text)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := string(must(got.YAML())), string(must(c.want.YAML())); a != b {
				t.Errorf("read back = %s, want %s", a, b)
			}
		})
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Tag.Get("doc") == "" {
				t.Errorf("%s%s has no doc tag", path, f.Tag.Get("yaml"))
			}
			if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[config.Runtimes]() {
				walk(f.Type, path+f.Tag.Get("yaml")+".")
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
}

func FuzzParse(f *testing.F) {
	documented, err := config.Documented()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(documented)
	f.Add([]byte("node: &a {labels: *a}\n"))
	f.Add([]byte("runtimes: [{type: cri, endpoint: /a}]\nshutdown: {byPriority: [{priority: 3}]}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := config.Parse("f.yaml", in)
		if err != nil {
			var faults config.Faults
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("Parse() = %v, want Faults", err)
			}
			return
		}
		text := must(c.YAML())
		again, err := config.Parse("again.yaml", text)
		if err != nil {
			t.Fatalf("Parse() of what was printed = %v, want no error in\n%s", err, text)
		}
		if string(must(again.YAML())) != string(text) {
			t.Fatalf("read back = %s, want %s", must(again.YAML()), text)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
