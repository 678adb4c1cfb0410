package config

import (
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"hostler.io/hostler/internal/listen"
)

// API configures where the API is served, and who may use it.
type API struct {
	Socket string `yaml:"socket" doc:"Absolute path of the unix socket. Root may act, group hostler may read." shape:"path"`
	Listen string `yaml:"listen" doc:"An IP address and port, such as 192.0.2.7:9755, where the API is served over TLS 1.3 to clients with a certificate. Empty: only the socket."`
	TLS    APITLS `yaml:"tls" doc:"Files and names for listen, and for metrics.listen beyond loopback. The files are read again when they change."`
}

// APITLS configures the certificates of the agent and of its callers.
type APITLS struct {
	Certificate  string       `yaml:"certificate" doc:"The certificate of the agent with its intermediate certificates, as PEM." shape:"optionalPath"`
	Key          string       `yaml:"key" doc:"The key of the certificate." shape:"optionalPath" secret:"file"`
	ClientCA     string       `yaml:"clientCA" doc:"The CAs of the client certificates, as PEM." shape:"optionalPath"`
	AllowedNames AllowedNames `yaml:"allowedNames" doc:"Clients that are served, by a name in their certificate: common name, DNS name, or URI with ://. Names must match exactly." reload:"live"`
}

// AllowedNames are the allowed names in client certificates.
type AllowedNames struct {
	Read []string `yaml:"read" doc:"Clients that may read, including metrics."`
	Act  []string `yaml:"act" doc:"Clients that may read, drain, cordon, uncordon, and read container logs."`
}

// set reports whether any file is configured.
func (t APITLS) set() bool { return t.Certificate != "" || t.Key != "" || t.ClientCA != "" }

// Metrics configures the metrics listener.
type Metrics struct {
	Listen string `yaml:"listen" doc:"An IP address and port; empty does not listen. Loopback is served over plain HTTP, other addresses over TLS as set in api.tls."`
}

// Loopback reports whether metrics are served only on loopback, where they need no TLS.
func (m Metrics) Loopback() bool { return listen.IsLoopback(m.Listen) }

// api checks the listeners and their access.
func (k *checker) api(c API, m Metrics) {
	k.Require(filepath.IsAbs(c.Socket) && len(c.Socket) < 108, "api.socket", "%q is not an absolute path of at most 107 bytes", c.Socket)
	k.Require(c.Listen == "" || listen.IsAddress(c.Listen), "api.listen", "%q is not an IP address with a port, such as 192.0.2.7:9755, or [::]:9755 for all addresses of this host", c.Listen)
	exposed := m.Listen != "" && !m.Loopback()
	switch {
	case m.Listen == "":
	case !listen.IsAddress(m.Listen):
		k.Require(false, "metrics.listen", "%q is not an IP address with a port, such as 127.0.0.1:9754", m.Listen)
	case m.Listen == c.Listen:
		k.Require(false, "metrics.listen", "%s is api.listen, where metrics are served anyway", m.Listen)
	case exposed && !c.TLS.set():
		k.Require(false, "metrics.listen", "%q is not a loopback address with a port, such as 127.0.0.1:9754: beyond this host metrics are served only over TLS; set api.tls", m.Listen)
	}
	k.callers(c, c.Listen != "" || exposed && c.TLS.set())
}

// callers checks the certificates and names of callers. All are required if something is served
// over the network, and none is allowed otherwise.
func (k *checker) callers(c API, served bool) {
	const field = "api.tls"
	files := []struct{ name, path, what string }{
		{"certificate", c.TLS.Certificate, "the agent's certificate"},
		{"key", c.TLS.Key, "the key of the agent's certificate"},
		{"clientCA", c.TLS.ClientCA, "the authorities of the callers' certificates"},
	}
	names := c.TLS.AllowedNames
	for _, f := range files {
		k.Require(f.path == "" || filepath.IsAbs(f.path), field+"."+f.name, "%q is not an absolute path", f.path)
		k.Require(f.path != "" || !served, field, "has no %s: name the file of %s", f.name, f.what)
	}
	someone := len(names.Read)+len(names.Act) > 0
	k.Require(someone || !served, field+".allowedNames", "lets nobody in: write the names of who may read into read, of who may act as well into act")
	k.Require(served || !c.TLS.set() && !someone, field, "has no effect without api.listen, or a metrics.listen beyond loopback")
	seen := map[string]string{}
	for _, role := range []struct {
		field string
		names []string
	}{{field + ".allowedNames.read", names.Read}, {field + ".allowedNames.act", names.Act}} {
		for i, name := range role.names {
			at := role.field + "[" + strconv.Itoa(i) + "]"
			k.name(name, at)
			k.Require(seen[name] == "", at, "%q stands in %s already; who may act may read", name, seen[name])
			seen[name] = at
		}
	}
}

// name checks that a certificate can have this name. Patterns are rejected, because they would
// allow more callers than is obvious.
func (k *checker) name(name, field string) {
	k.Require(!strings.Contains(name, "*"), field, "%q is a pattern, and names are compared letter by letter; write each name, of everybody who is let in", name)
	odd := strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || !unicode.IsPrint(r) })
	k.Require(name != "" && name == strings.TrimSpace(name) && !odd, field, "%q is not a valid name; write a common name, a DNS name or a URI", name)
	if strings.Contains(name, "://") {
		u, err := url.Parse(name)
		k.Require(err == nil && u.Scheme != "" && u.String() == name, field, "%q is no URI as certificates hold them, such as spiffe://example.org/prometheus", name)
	}
}
