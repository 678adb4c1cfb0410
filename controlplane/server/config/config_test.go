package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/internal/configfile"
)

const good = "store: {type: etcd, etcd: {endpoints: [\"https://e1:2379\"]}}\n"

func TestConfigurationsThatAreRejected(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no store":                        {"", "store.type: set it to etcd or kubernetes"},
		"an unknown store":                {"store: {type: consul}", `store.type: "consul" is none of etcd, kubernetes`},
		"etcd without members":            {"store: {type: etcd}", "f.yaml:1: store.type: etcd needs to know the cluster"},
		"keys of another store":           {"store: {type: kubernetes, kubernetes: {kubeconfig: /k}, etcd: {username: u, passwordFile: /p}}", "store.etcd.username: does not apply to store kubernetes; set store.type: etcd"},
		"an unknown key":                  {good + "nodeLifeCycle: {}", "nodeLifeCycle: unknown field; did you mean nodeLifecycle?"},
		"an unknown controller":           {good + "controllers: [node-livecycle]", `controllers: "node-livecycle" is not a controller of this version`},
		"a contradiction":                 {good + "controllers: [node-lifecycle, -node-lifecycle]", `"-node-lifecycle" contradicts "node-lifecycle"`},
		"a rate that is no number":        {good + "nodeLifecycle: {evictionRate: slow}", `nodeLifecycle.evictionRate: "slow" is not a number such as 0.1`},
		"a rate that is not a number":     {good + "nodeLifecycle: {evictionRate: .nan}", "nodeLifecycle.evictionRate"},
		"a negative rate":                 {good + "nodeLifecycle: {evictionRate: -1, secondaryEvictionRate: -1}", "-1 is neither 0 nor a rate from 1e-05 to 1000"},
		"a rate that overflows":           {good + "nodeLifecycle: {evictionRate: 1e-10, secondaryEvictionRate: 0}", "1e-10 is neither 0 nor a rate from 1e-05 to 1000"},
		"a duration that overflows":       {good + "nodeLifecycle: {monitorPeriod: 1000000h}", "1000000h is longer than 87600h, the longest duration"},
		"a secondary rate above":          {good + "nodeLifecycle: {secondaryEvictionRate: 1}", "1 is above nodeLifecycle.evictionRate (0.1, its default)"},
		"a part above 1":                  {good + "nodeLifecycle: {unhealthyZoneThreshold: 55}", "55 is not a part from 0 to 1, such as 0.55"},
		"a grace period without units":    {good + "nodeLifecycle: {gracePeriod: 50}", "nodeLifecycle.gracePeriod"},
		"a grace period that is short":    {good + "nodeLifecycle: {gracePeriod: 1s}", "1s is shorter than 10s"},
		"a label that is none":            {good + "nodeLifecycle: {zoneLabels: [a b]}", `"a b" is not a label`},
		"a dead zone":                     {good + "nodeLifecycle: {deadZone: kill}", `"kill" is none of pause, evict`},
		"a rate of renewals that is none": {good + "heartbeats: {maxPerSecond: fast}", `heartbeats.maxPerSecond: "fast" is not a number`},
		"a negative rate of renewals":     {good + "heartbeats: {maxPerSecond: -1}", "heartbeats.maxPerSecond: -1 is not a rate from 0 to 1000000 renewals per second"},
		"no number of renewals":           {good + "heartbeats: {maxPerSecond: .nan}", "heartbeats.maxPerSecond"},
		"another key of heartbeats":       {good + "heartbeats: {maxPersecond: 1}", "heartbeats.maxPersecond: unknown field; did you mean maxPerSecond?"},
		"a relative socket":               {good + "api: {socket: s}", `api.socket: "s" is not an absolute path`},
		"metrics for everybody":           {good + `metrics: {listen: "0.0.0.0:9756"}`, "0.0.0.0:9756 is beyond loopback, where everybody who can connect reads metrics, unencrypted: set metrics.insecure: true"},
		"metrics on a name":               {good + `metrics: {listen: "h:9756"}`, `metrics.listen: "h:9756" is not an IP address with a port`},
		"a group with too many slots":     {good + "reboots: {groups: {default: {slots: 101}}}", "reboots.groups.default.slots: 101 is not a number from 0 to 100"},
		"a group with a negative number":  {good + "reboots: {groups: {default: {slots: -1}}}", "-1 is not a number from 0 to 100"},
		"a misspelt key of a group":       {good + "reboots: {groups: {workers: {slot: 1}}}", "f.yaml:2: reboots.groups.workers.slot: unknown field; did you mean slots?"},
		"a part that is none":             {good + "reboots: {groups: {default: {maxUnavailable: half}}}", `reboots.groups.default.maxUnavailable: "half" is neither a number of Nodes, such as 1, nor a percentage, such as 10%`},
		"a group name that is none":       {good + "reboots: {groups: {Workers: {}}}", `reboots.groups.Workers: "Workers" is not the name of a group`},
		"a long group name":               {good + "reboots: {groups: {" + strings.Repeat("x", 64) + ": {}}}", "must be no more than 63"},
		"groups that are a list":          {good + "reboots: {groups: [default]}", "reboots.groups: must be a map of names to values"},
		"too many groups":                 {good + "reboots: {groups: {" + manyGroups(50) + "}}", "reboots.groups: 51 groups are more than 50"},
		"a group twice":                   {good + "reboots: {groups: {a: {}, a: {}}}", "set twice in this file"},
		"FleetLock for everybody":         {good + `reboots: {listen: "0.0.0.0:9757"}`, "0.0.0.0:9757 is beyond loopback, where everybody who can connect takes slots: set reboots.tls, or reboots.insecure: true"},
		"FleetLock on a name":             {good + `reboots: {listen: "h:9757"}`, `reboots.listen: "h:9757" is not an IP address with a port`},
		"FleetLock where metrics are":     {good + `reboots: {listen: "127.0.0.1:9756"}`, "127.0.0.1:9756 is metrics.listen"},
		"FleetLock without controller":    {good + "controllers: [clones]\nreboots: {listen: \"127.0.0.1:9757\"}", "reboots.listen: has no effect without the controller reboots"},
		"insecure FleetLock for nothing":  {good + "reboots: {insecure: true}", "reboots.insecure: has no effect"},
		"insecure FleetLock with a CA":    {good + `reboots: {listen: "0.0.0.0:9757", insecure: true, tls: {certificate: /c, key: /k, clientCA: /ca}}`, "reboots.insecure: has no effect"},
		"insecure FleetLock, password":    {good + `reboots: {listen: "127.0.0.1:9757", insecure: true, passwordFile: /p}`, "reboots.insecure: has no effect"},
		"FleetLock for local users":       {good + `reboots: {listen: "127.0.0.1:9757"}`, "reboots.listen: every user who can connect to 127.0.0.1:9757 takes slots, and gives back those of others: set reboots.passwordFile"},
		"TLS FleetLock for everybody":     {good + `reboots: {listen: "0.0.0.0:9757", tls: {certificate: /c, key: /k}}`, "every user who can connect to 0.0.0.0:9757 takes slots"},
		"a password by plain HTTP":        {good + `reboots: {listen: "0.0.0.0:9757", passwordFile: /p}`, "0.0.0.0:9757 is beyond loopback"},
		"a relative password file":        {good + `reboots: {listen: "127.0.0.1:9757", passwordFile: p}`, "reboots.passwordFile: the value is not an absolute path"},
		"a password for nothing":          {good + "reboots: {passwordFile: /p}", "reboots.passwordFile: has no effect without reboots.listen"},
		"TLS without a key":               {good + `reboots: {listen: "0.0.0.0:9757", tls: {certificate: /c}}`, "reboots.tls: has no key"},
		"TLS with a relative file":        {good + `reboots: {listen: "0.0.0.0:9757", tls: {certificate: c, key: /k}}`, `reboots.tls.certificate: "c" is not an absolute path`},
		"TLS for nothing":                 {good + "reboots: {tls: {certificate: /c, key: /k}}", "reboots.tls: has no effect without reboots.listen"},
		"insecure for nothing":            {good + "metrics: {insecure: true}", "metrics.insecure: has no effect without a metrics.listen beyond loopback"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Spec().Parse("f.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse() = %v, want %q", err, c.want)
			}
		})
	}
}

// manyGroups returns n groups beside the default one.
func manyGroups(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("g%d: {}", i))
	}
	return strings.Join(names, ", ")
}

func TestWhichControllersRun(t *testing.T) {
	for name, c := range map[string]struct {
		list        []string
		runs, named bool
	}{
		"by default":        {[]string{"*"}, true, false},
		"by name":           {[]string{"node-lifecycle"}, true, true},
		"all but one":       {[]string{"*", "-node-lifecycle"}, false, false},
		"all, and one more": {[]string{"*", "node-lifecycle"}, true, true},
		"none":              {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			runs, named := config.Config{Controllers: c.list}.Runs("node-lifecycle")
			if runs != c.runs || named != c.named {
				t.Errorf("Runs() = %v, %v, want %v, %v", runs, named, c.runs, c.named)
			}
		})
	}
}

func TestDefaultsAreDocumentedAndAccepted(t *testing.T) {
	keys, err := config.Spec().Keys()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if key.Doc == "" {
			t.Errorf("key %s has no description", key.Path)
		}
	}
	text, err := config.Spec().Documented()
	if err != nil {
		t.Fatal(err)
	}
	read, err := config.Spec().Parse("f.yaml", []byte(strings.Replace(string(text), `type: ""`, "type: etcd", 1)))
	if err == nil || !strings.Contains(err.Error(), "name its members") {
		t.Errorf("the documented defaults with a store = %v, %v, want nothing missing but its members", read, err)
	}
	if _, err := config.Spec().Schema(); err != nil {
		t.Error(err)
	}
	c, err := config.Spec().Parse("f.yaml", []byte(good+"nodeLifecycle: {evictionRate: 1, zoneLabels: [rack]}"))
	if c.Heartbeats.MaxPerSecond != 300 {
		t.Errorf("heartbeats.maxPerSecond = %v, want 300", c.Heartbeats.MaxPerSecond)
	}
	if err != nil || c.NodeLifecycle.Policy().EvictionRate != 1 || !slices.Equal(c.NodeLifecycle.ZoneLabels, []string{"rack"}) {
		t.Errorf("Parse() = %+v, %v", c.NodeLifecycle, err)
	}
}

// A default never makes a valid evictionRate invalid.
func TestTheDefaultSecondaryRateIsAtMostTheRate(t *testing.T) {
	for rate, want := range map[string]float64{"0": 0, "0.005": 0.005, "1": 0.01} {
		c, err := config.Spec().Parse("f.yaml", []byte(good+"nodeLifecycle: {evictionRate: "+rate+"}"))
		if got := c.NodeLifecycle.SecondaryEvictionRate; err != nil || got != want {
			t.Errorf("secondaryEvictionRate with evictionRate %s = %v, %v, want %v", rate, got, err, want)
		}
	}
}

// TestGroupsAreMerged has a new group with the defaults, and the old one with one change.
func TestGroupsAreMerged(t *testing.T) {
	c, err := config.Spec().Parse("f.yaml", []byte(good+`reboots: {groups: {default: {slots: 3}, workers: {maxUnavailable: 2}}, listen: "192.0.2.1:9757", tls: {certificate: /c, key: /k, clientCA: /ca}}`))
	if err != nil {
		t.Fatal(err)
	}
	policies := c.Reboots.Groups.Policies()
	for group, want := range map[string]string{"default": "{default 3 true 10%}", "workers": "{workers 1 true 2}"} {
		if got := fmt.Sprint(policies[group]); got != want {
			t.Errorf("group %s = %s, want %s", group, got, want)
		}
	}
	if len(policies) != 2 || len(config.Default().Reboots.Groups) != 1 {
		t.Errorf("groups = %v, want two; defaults %v, want one", policies, config.Default().Reboots.Groups)
	}
	if !configfile.Live[config.Config]("reboots.groups") || configfile.Live[config.Config]("reboots.listen") {
		t.Error("a reload is to apply groups, and not listen")
	}
}
