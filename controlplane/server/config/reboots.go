package config

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/internal/configfile"
)

// Reboots configures the controller reboots.
type Reboots struct {
	Groups Groups `yaml:"groups" doc:"The groups of hosts, each with slots, oneZoneAtATime and maxUnavailable. slots: how many hosts may reboot at a time, 0 to 100. oneZoneAtATime: only Nodes of one zone at a time. maxUnavailable: while more Nodes of the group than this number or percentage are not Ready for other reasons, no host gets a slot. A Node is in the group of its label hostler.io/reboot-group, or else in default." reload:"live"`
	Listen string `yaml:"listen" doc:"An IP address and port, such as 127.0.0.1:9757, for clients that speak FleetLock, such as Zincati. Empty does not listen."`
	// PasswordFile keeps out other users of the host, and whoever can connect.
	PasswordFile string     `yaml:"passwordFile" doc:"A file with the password of all FleetLock clients, which they send by HTTP basic authentication with any user name. It is read at each request." shape:"optionalPath" secret:"file"`
	Insecure     bool       `yaml:"insecure" doc:"Allow clients without a password and without a certificate, and addresses beyond loopback without TLS: everybody who can connect takes slots, and gives back those of others."`
	TLS          RebootsTLS `yaml:"tls" doc:"Serve FleetLock over TLS. The files are read again when they change."`
}

// RebootsTLS has the files of the FleetLock server.
type RebootsTLS struct {
	Certificate string `yaml:"certificate" doc:"The certificate of the server with its intermediate certificates, as PEM." shape:"optionalPath"`
	Key         string `yaml:"key" doc:"The key of the certificate." shape:"optionalPath" secret:"file"`
	ClientCA    string `yaml:"clientCA" doc:"The CAs of client certificates, as PEM. Clients then need a certificate." shape:"optionalPath"`
}

// Set reports whether FleetLock is served over TLS.
func (t RebootsTLS) Set() bool { return t != RebootsTLS{} }

// Group configures one group.
type Group struct {
	Slots          int    `yaml:"slots" doc:"How many hosts may reboot at a time; 0 for none." least:"0" most:"100"`
	OneZoneAtATime bool   `yaml:"oneZoneAtATime" doc:"Only Nodes of one zone reboot at a time."`
	MaxUnavailable string `yaml:"maxUnavailable" doc:"How many Nodes of the group, as a number or a percentage, may be not Ready for other reasons while a host gets a slot."`
}

func defaultGroup() Group { return Group{Slots: 1, OneZoneAtATime: true, MaxUnavailable: "10%"} }

// Groups are the groups by name.
type Groups map[string]Group

// Decode implements configfile.Custom. A new group gets the default values.
func (g *Groups) Decode(d configfile.Decoding, n *yaml.Node) {
	next := maps.Clone(*g)
	d.Pairs(n, func(name string, d configfile.Decoding, value *yaml.Node) {
		group, known := next[name]
		if !known {
			group = defaultGroup()
		}
		d.Value(value, &group)
		next[name] = group
	})
	*g = next
}

// Schema implements configfile.Custom.
func (g *Groups) Schema(list func(reflect.Type) (map[string]any, error)) (map[string]any, error) {
	n, err := list(reflect.TypeFor[[]Group]())
	if err != nil {
		return nil, err
	}
	return map[string]any{"type": []string{"object", "null"}, "additionalProperties": n["items"]}, nil
}

// Policies returns the groups in the form of the controller.
func (g Groups) Policies() reboots.Policies {
	policies := reboots.Policies{}
	for name, group := range g {
		part, _ := slots.ParsePart(group.MaxUnavailable) // checked before
		policies[name] = slots.Policy{Group: name, Slots: group.Slots, OneZoneAtATime: group.OneZoneAtATime, MaxUnavailable: part}
	}
	return policies
}

// reboots checks the groups, and the FleetLock listener.
func (k checker) reboots(c Config) {
	const field = "reboots."
	k.Require(len(c.Reboots.Groups) <= slots.MostGroups, field+"groups", "%d groups are more than %d", len(c.Reboots.Groups), slots.MostGroups)
	for _, name := range slices.Sorted(maps.Keys(c.Reboots.Groups)) {
		group, at := c.Reboots.Groups[name], field+"groups."+name
		problems := validation.IsDNS1123Subdomain(name)
		if len(name) > validation.DNS1123LabelMaxLength {
			problems = append(problems, validation.MaxLenError(validation.DNS1123LabelMaxLength))
		}
		k.Require(len(problems) == 0, at, "%q is not the name of a group: %s", name, strings.Join(problems, "; "))
		k.Require(group.Slots >= 0 && group.Slots <= slots.MostSlots, at+".slots", "%d is not a number from 0 to %d", group.Slots, slots.MostSlots)
		_, err := slots.ParsePart(group.MaxUnavailable)
		k.Require(err == nil, at+".maxUnavailable", "%v", err)
	}
	r := c.Reboots
	runs, _ := c.Runs(reboots.Name)
	open := k.address(field+"listen", r.Listen, "127.0.0.1:9757")
	k.Require(r.Listen == "" || runs, field+"listen", "has no effect without the controller %s in `controllers`", reboots.Name)
	k.Require(r.Listen == "" || r.Listen != c.Metrics.Listen, field+"listen", "%s is metrics.listen", r.Listen)
	plain, known := open && !r.TLS.Set(), r.PasswordFile != "" || r.TLS.ClientCA != ""
	k.Require(!plain || r.Insecure, field+"listen", "%s is beyond loopback, where everybody who can connect takes slots: set reboots.tls, or reboots.insecure: true to allow that", r.Listen)
	k.Require(r.Listen == "" || plain || known || r.Insecure, field+"listen", "every user who can connect to %s takes slots, and gives back those of others: set reboots.passwordFile or reboots.tls.clientCA, or reboots.insecure: true to allow that", r.Listen)
	k.Require(!r.Insecure || r.Listen != "" && (plain || !known), field+"insecure", "has no effect without reboots.listen, or with reboots.tls.clientCA, or with reboots.passwordFile and an encrypted or loopback address")
	k.Require(r.PasswordFile == "" || filepath.IsAbs(r.PasswordFile), field+"passwordFile", "%q is not an absolute path", r.PasswordFile)
	k.Require(r.PasswordFile == "" || r.Listen != "", field+"passwordFile", "has no effect without reboots.listen")
	k.Require(r.Listen != "" || !r.TLS.Set(), field+"tls", "has no effect without reboots.listen")
	for _, f := range []struct {
		name, path string
		needed     bool
	}{{"certificate", r.TLS.Certificate, true}, {"key", r.TLS.Key, true}, {"clientCA", r.TLS.ClientCA, false}} {
		k.Require(f.path == "" || filepath.IsAbs(f.path), field+"tls."+f.name, "%q is not an absolute path", f.path)
		k.Require(f.path != "" || !f.needed || !r.TLS.Set(), field+"tls", "has no %s", f.name)
	}
}
