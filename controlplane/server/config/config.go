// Package config has the keys of the server's configuration, with defaults and validation.
package config

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/clones"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/controllers/heartbeats"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/etcd/endpoint"
	"hostler.io/hostler/internal/configfile"
	"hostler.io/hostler/internal/listen"
)

// The default paths.
const (
	DefaultFile    = "/etc/hostler/server.yaml"
	DefaultDropIns = "/etc/hostler/server.d"
	DefaultSocket  = "/run/hostler-server/server.sock"
	SchemaFile     = "/usr/share/hostler/hostler-server.schema.json"
)

// Config is the whole configuration. configfile.Spec documents the tags.
type Config struct {
	Store         Store         `yaml:"store" doc:"Where the Nodes and Leases of the fleet are."`
	Controllers   []string      `yaml:"controllers" doc:"The controllers to run: * for all, NAME for one, -NAME to leave one out. On Kubernetes, * leaves out those that kube-controller-manager has, if it was ever there; NAME runs one all the same."`
	NodeLifecycle NodeLifecycle `yaml:"nodeLifecycle" doc:"When Nodes become Unknown and are tainted."`
	Heartbeats    Heartbeats    `yaml:"heartbeats" doc:"How long the Leases of a fleet on etcd last."`
	Reboots       Reboots       `yaml:"reboots" doc:"Reboot slots: how many hosts of a group may reboot at a time."`
	API           API           `yaml:"api" doc:"The API for the hostler fleet commands."`
	Metrics       Metrics       `yaml:"metrics" doc:"Prometheus metrics."`
	Log           Log           `yaml:"log" doc:"The server's log."`
}

// Store has the type of the store and its credentials.
type Store struct {
	Type       string          `yaml:"type" doc:"etcd or kubernetes." words:"|etcd|kubernetes"`
	Etcd       endpoint.Config `yaml:"etcd" doc:"Connection to etcd; for type etcd."`
	Kubernetes Kubernetes      `yaml:"kubernetes" doc:"Connection to the cluster; for type kubernetes."`
}

// Kubernetes has the cluster and the credentials.
type Kubernetes struct {
	Kubeconfig string `yaml:"kubeconfig" doc:"A kubeconfig with credentials for the server; empty in a pod, for its service account." shape:"optionalPath" secret:"file"`
	Namespace  string `yaml:"namespace" doc:"The namespace of the Leases by which servers elect leaders."`
}

// NodeLifecycle configures the controller node-lifecycle.
type NodeLifecycle struct {
	MonitorPeriod           configfile.Duration `yaml:"monitorPeriod" doc:"The longest time from one check of all Nodes to the next. Changes are seen at once." reload:"live"`
	GracePeriod             configfile.Duration `yaml:"gracePeriod" doc:"On Kubernetes: how long a host may neither renew its Lease nor report its status before its conditions become Unknown. On etcd, it counts only for a host without a Lease: otherwise the duration of the Lease decides." reload:"live"`
	StartupGracePeriod      configfile.Duration `yaml:"startupGracePeriod" doc:"The same for a Node without any status." reload:"live"`
	EvictionRate            float64             `yaml:"evictionRate" doc:"How many Nodes of a zone get a NoExecute taint per second: 0 for none, or 0.00001 to 1000." reload:"live" least:"0"`
	SecondaryEvictionRate   float64             `yaml:"secondaryEvictionRate" doc:"The same while many Nodes of the zone are not ready, in a fleet of more than largeFleetSizeThreshold Nodes. In a smaller fleet it is 0. The default is at most evictionRate." reload:"live" least:"0"`
	LargeFleetSizeThreshold int                 `yaml:"largeFleetSizeThreshold" doc:"Up to how many Nodes a fleet is small." reload:"live" least:"0"`
	UnhealthyZoneThreshold  float64             `yaml:"unhealthyZoneThreshold" doc:"The part of the Nodes of a zone, from 0 to 1, that must not be ready before secondaryEvictionRate applies; at least three Nodes." reload:"live" least:"0" most:"1"`
	ZoneLabels              []string            `yaml:"zoneLabels" doc:"The labels whose values, joined, name the zone of a Node."`
	DeadZone                string              `yaml:"deadZone" doc:"What to do with a zone of which no Node is ready, while others have some: evict gives NoExecute taints at evictionRate, pause gives none if the zone has several Nodes." words:"evict|pause" reload:"live"`
}

// Policy returns the configuration in the form of the controller.
func (n NodeLifecycle) Policy() lifecycle.Policy {
	return lifecycle.Policy{
		MonitorPeriod: time.Duration(n.MonitorPeriod), GracePeriod: time.Duration(n.GracePeriod), StartupGracePeriod: time.Duration(n.StartupGracePeriod),
		EvictionRate: n.EvictionRate, SecondaryEvictionRate: n.SecondaryEvictionRate, LargeFleetSizeThreshold: n.LargeFleetSizeThreshold,
		UnhealthyZoneThreshold: n.UnhealthyZoneThreshold, DeadZone: lifecycle.DeadZone(n.DeadZone),
	}
}

// Heartbeats configures the controller heartbeats.
type Heartbeats struct {
	MaxPerSecond float64 `yaml:"maxPerSecond" doc:"How many Leases all hosts together may renew per second. For more hosts, the server lengthens their Leases by the setting lease-duration, unless a person has set that. 0 changes nothing, and keeps a setting that exists." reload:"live" least:"0"`
}

// API configures the socket.
type API struct {
	Socket string `yaml:"socket" doc:"Absolute path of the unix socket. Group hostler may read." shape:"path"`
}

// Metrics configures the metrics listener.
type Metrics struct {
	Listen   string `yaml:"listen" doc:"An IP address and port for /metrics and /healthz; empty does not listen. The API socket serves both, too."`
	Insecure bool   `yaml:"insecure" doc:"Allow addresses beyond loopback: everybody who can connect reads metrics, unencrypted. Restrict it with a firewall or NetworkPolicy."`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" doc:"The least severe level that is logged." words:"debug|info|warn|error" reload:"live"`
	Format string `yaml:"format" doc:"text or json." words:"text|json"`
}

// Names returns the controllers of this version.
func Names() []string {
	return []string{lifecycle.Name, eviction.Name, garbagecollector.Name, clones.Name, heartbeats.Name, reboots.Name}
}

// Default returns the values of keys that are not set.
func Default() Config {
	p := lifecycle.DefaultPolicy()
	return Config{
		Store:       Store{Etcd: endpoint.Default(), Kubernetes: Kubernetes{Namespace: "hostler-system"}},
		Controllers: []string{"*"},
		NodeLifecycle: NodeLifecycle{
			MonitorPeriod: configfile.Duration(p.MonitorPeriod), GracePeriod: configfile.Duration(p.GracePeriod), StartupGracePeriod: configfile.Duration(p.StartupGracePeriod),
			EvictionRate: p.EvictionRate, SecondaryEvictionRate: p.SecondaryEvictionRate, LargeFleetSizeThreshold: p.LargeFleetSizeThreshold,
			UnhealthyZoneThreshold: p.UnhealthyZoneThreshold, ZoneLabels: lifecycle.DefaultZoneLabels(), DeadZone: string(p.DeadZone),
		},
		Heartbeats: Heartbeats{MaxPerSecond: heartbeats.DefaultMaxPerSecond},
		Reboots:    Reboots{Groups: Groups{controlplane.DefaultRebootGroup: defaultGroup()}},
		API:        API{Socket: DefaultSocket},
		Metrics:    Metrics{Listen: "127.0.0.1:9756"},
		Log:        Log{Level: "info", Format: "text"},
	}
}

// Spec returns how the configuration is read.
func Spec() configfile.Spec[Config] {
	return configfile.Spec[Config]{
		Title: "Configuration of hostler server", ManualPage: "hostler-server.yaml(5)",
		File: DefaultFile, DropIns: DefaultDropIns, Default: Default,
		Check: func(k *configfile.Checker, c *Config) { checker{k}.check(c) },
	}
}

type checker struct{ *configfile.Checker }

func (k checker) check(c *Config) {
	k.store(c.Store)
	k.controllers(c.Controllers)
	k.nodeLifecycle(&c.NodeLifecycle)
	const most = 1_000_000
	k.Require(c.Heartbeats.MaxPerSecond >= 0 && c.Heartbeats.MaxPerSecond <= most, "heartbeats.maxPerSecond", "%v is not a rate from 0 to %d renewals per second", c.Heartbeats.MaxPerSecond, most)
	k.reboots(*c)
	k.Require(filepath.IsAbs(c.API.Socket) && len(c.API.Socket) < 108, "api.socket", "%q is not an absolute path of at most 107 bytes", c.API.Socket)
	k.metrics(c.Metrics)
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "text", "json")
}

// address checks a listen address; empty for none. open reports whether it is reachable from other
// hosts.
func (k checker) address(field, address, example string) (open bool) {
	valid := address == "" || listen.IsAddress(address)
	k.Require(valid, field, "%q is not an IP address with a port, such as %s", address, example)
	return valid && address != "" && !listen.IsLoopback(address)
}

// metrics checks the address of metrics.
func (k checker) metrics(m Metrics) {
	open := k.address("metrics.listen", m.Listen, "127.0.0.1:9756")
	k.Require(!open || m.Insecure, "metrics.listen", "%s is beyond loopback, where everybody who can connect reads metrics, unencrypted: set metrics.insecure: true to allow that", m.Listen)
	k.Require(open || !m.Insecure, "metrics.insecure", "has no effect without a metrics.listen beyond loopback")
}

// oneOf records an error unless the value is one of the values.
func (k checker) oneOf(field, value string, values ...string) {
	k.Require(slices.Contains(values, value), field, "%q is none of %s", value, strings.Join(values, ", "))
}

func (k checker) store(s Store) {
	const missing = "set it to etcd or kubernetes: the store that the agents of the fleet use"
	k.Require(s.Type != "", "store.type", missing)
	if s.Type != "" {
		k.oneOf("store.type", s.Type, "etcd", "kubernetes")
	}
	for _, name := range s.Etcd.Set() {
		k.Require(s.Type == "etcd", "store.etcd."+name, "does not apply to store %s; set store.type: etcd", s.Type)
	}
	k.Require(s.Type != "etcd" || len(s.Etcd.Endpoints) > 0, "store.type", "etcd needs to know the cluster: name its members in store.etcd.endpoints")
	s.Etcd.Check(k.Checker, "store.etcd")
	file := s.Kubernetes.Kubeconfig
	k.Require(file == "" || filepath.IsAbs(file), "store.kubernetes.kubeconfig", "%q is not an absolute path", file)
	k.Require(file == "" || s.Type == "kubernetes", "store.kubernetes.kubeconfig", "does not apply to store %s; set store.type: kubernetes", s.Type)
	problems := validation.IsDNS1123Label(s.Kubernetes.Namespace)
	k.Require(len(problems) == 0, "store.kubernetes.namespace", "%q is not a namespace: %s", s.Kubernetes.Namespace, strings.Join(problems, "; "))
}

func (k checker) controllers(names []string) {
	for i, text := range names {
		name := strings.TrimPrefix(text, "-")
		k.Require(text == "*" || slices.Contains(Names(), name), "controllers", "%q is not a controller of this version; use *, NAME or -NAME with %s", text, strings.Join(Names(), ", "))
		k.Require(!slices.Contains(names[:i], text), "controllers", "%q is named twice", text)
		k.Require(text == name || !slices.Contains(names, name), "controllers", "%q contradicts %q", text, name)
	}
}

func (k checker) nodeLifecycle(n *NodeLifecycle) {
	const field = "nodeLifecycle."
	if !k.Given(field+"secondaryEvictionRate") && n.EvictionRate >= 0 {
		n.SecondaryEvictionRate = min(n.SecondaryEvictionRate, n.EvictionRate)
	}
	k.AtLeast(n.MonitorPeriod, time.Second, field+"monitorPeriod")
	k.AtLeast(n.GracePeriod, 10*time.Second, field+"gracePeriod")
	k.AtLeast(n.StartupGracePeriod, 10*time.Second, field+"startupGracePeriod")
	for name, rate := range map[string]float64{"evictionRate": n.EvictionRate, "secondaryEvictionRate": n.SecondaryEvictionRate} {
		k.Require(rate == 0 || rate >= lifecycle.LeastRate && rate <= lifecycle.MostRate, field+name, "%v is neither 0 nor a rate from %v to %v Nodes per second", rate, lifecycle.LeastRate, lifecycle.MostRate)
	}
	k.Require(n.SecondaryEvictionRate <= n.EvictionRate, field+"secondaryEvictionRate", "%v is above %s", n.SecondaryEvictionRate, k.Other(field+"evictionRate", n.EvictionRate))
	k.Require(n.LargeFleetSizeThreshold >= 0, field+"largeFleetSizeThreshold", "%d is negative", n.LargeFleetSizeThreshold)
	k.Require(n.UnhealthyZoneThreshold >= 0 && n.UnhealthyZoneThreshold <= 1, field+"unhealthyZoneThreshold", "%v is not a part from 0 to 1, such as 0.55", n.UnhealthyZoneThreshold)
	for i, label := range n.ZoneLabels {
		problems := validation.IsQualifiedName(label)
		k.Require(len(problems) == 0, field+"zoneLabels", "%q is not a label: %s", label, strings.Join(problems, "; "))
		k.Require(!slices.Contains(n.ZoneLabels[:i], label), field+"zoneLabels", "%s is named twice", label)
	}
	k.oneOf(field+"deadZone", n.DeadZone, string(lifecycle.DeadZonePause), string(lifecycle.DeadZoneEvict))
}

// Runs reports whether a controller runs, and whether the configuration names it.
func (c Config) Runs(controller string) (runs, named bool) {
	named = slices.Contains(c.Controllers, controller)
	return named || slices.Contains(c.Controllers, "*") && !slices.Contains(c.Controllers, "-"+controller), named
}
