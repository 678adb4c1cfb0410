package endpoint

import (
	"fmt"
	"path/filepath"
	"slices"

	"hostler.io/hostler/internal/configfile"
)

// Config has the endpoints of an etcd cluster and the credentials. Check also checks the paths of
// files.
type Config struct {
	Endpoints    []string `yaml:"endpoints" doc:"The members' URLs, such as https://etcd-1.example:2379; one is used at a time, and the next one if it does not answer." shape:"member"`
	Prefix       string   `yaml:"prefix" doc:"Prefix of all keys: PREFIX/nodes/NAME, PREFIX/leases/NAME, PREFIX/events/NODE/NAME." shape:"path"`
	TLS          TLS      `yaml:"tls" doc:"Files for https. They are read again for each connection."`
	Username     string   `yaml:"username" doc:"The etcd user, if etcd auth is on and the client certificate does not name a user."`
	PasswordFile string   `yaml:"passwordFile" doc:"A file with the password of the user." shape:"optionalPath" secret:"file"`
	Insecure     bool     `yaml:"insecure" doc:"true allows plain http to other hosts, or with a password: anyone on the network path can read and change the data."`
}

// TLS are the files of connections to etcd.
type TLS struct {
	CA          string `yaml:"ca" doc:"The CAs of the member certificates; empty uses the CAs that this host trusts." shape:"optionalPath"`
	Certificate string `yaml:"certificate" doc:"This host's client certificate." shape:"optionalPath"`
	Key         string `yaml:"key" doc:"The key of the client certificate." shape:"optionalPath" secret:"file"`
}

// Default returns the values of keys that are not set.
func Default() Config { return Config{Prefix: "/hostler"} }

// Check records the errors of the configuration at a field.
func (c Config) Check(k *configfile.Checker, field string) {
	for name, path := range c.files() {
		k.Require(path == "" || filepath.IsAbs(path), field+"."+name, "%q is not an absolute path", path)
	}
	for i, text := range c.Endpoints {
		err := Check(text, c.Insecure, field+".insecure")
		if err == nil && Plain(text) && c.PasswordFile != "" && !c.Insecure { // on this host
			err = fmt.Errorf("%q is not encrypted, and any user who listens there while no member does gets the password: use https, or set %s.insecure: true", text, field)
		}
		k.Accept(err, fmt.Sprintf("%s.endpoints[%d]", field, i))
		k.Require(!slices.Contains(c.Endpoints[:i], text), fmt.Sprintf("%s.endpoints[%d]", field, i), "is named twice")
	}
	k.Accept(CheckPrefix(c.Prefix), field+".prefix")
	k.Require((c.TLS.Certificate == "") == (c.TLS.Key == ""), field+".tls", "a certificate needs its key, and a key its certificate")
	k.Require((c.Username == "") == (c.PasswordFile == ""), field, "a username needs its passwordFile, and a passwordFile its username")
}

// Set returns the names of keys that differ from their default.
func (c Config) Set() []string {
	set := map[string]bool{
		"endpoints": len(c.Endpoints) > 0, "username": c.Username != "", "insecure": c.Insecure,
		"prefix": c.Prefix != Default().Prefix,
	}
	for name, path := range c.files() {
		set[name] = path != ""
	}
	var names []string
	for name, is := range set {
		if is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c Config) files() map[string]string {
	return map[string]string{"tls.ca": c.TLS.CA, "tls.certificate": c.TLS.Certificate, "tls.key": c.TLS.Key, "passwordFile": c.PasswordFile}
}
