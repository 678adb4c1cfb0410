package endpoint_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/controlplane/etcd/endpoint"
)

func TestAnEndpointIsAHostThatCanBeVerified(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint string
		insecure bool
		want     string // in the error; empty for none
	}{
		"https":                            {"https://etcd-1.example:2379", false, ""},
		"https without a port":             {"https://etcd-1.example", false, ""},
		"https of an IPv6 address":         {"https://[2001:db8::1]:2379/", false, ""},
		"http of this host":                {"http://127.0.0.1:2379", false, ""},
		"http of this host by IPv6":        {"http://[::1]:2379", false, ""},
		"http of this host by name":        {"http://localhost:2379", false, ""},
		"http of another host":             {"http://etcd-1.example:2379", false, "set store.etcd.insecure: true"},
		"http of another host, as allowed": {"http://etcd-1.example:2379", true, ""},
		"a name that begins as this host's": {
			"http://localhost.example:2379", false, "set store.etcd.insecure: true",
		},
		"no scheme":                 {"etcd-1.example:2379", false, "write it as https://HOST:2379"},
		"another scheme":            {"unix:///run/etcd.sock", false, "write it as https://HOST:2379"},
		"no host":                   {"https://:2379", false, "has no host"},
		"nothing":                   {"", false, "is not an endpoint"},
		"a user in it":              {"https://root:secret@etcd-1.example:2379", false, "username and passwordFile"},
		"a user in what is no URL":  {"https://root:secret@etcd 1:2379", false, "is not an endpoint"},
		"a user and no scheme":      {"root:secret@etcd-1.example:2379", false, "is not an endpoint"},
		"a user and no host":        {"https://root:secret@:2379", false, "has no host"},
		"a user in what ends early": {"https://root:123#secret@etcd-1.example:2379", false, "more than a host and a port"},
		"a token in it":             {"https://etcd-1.example:2379/?token=secret", false, "more than a host and a port"},
		"a path in it":              {"https://etcd-1.example:2379/v3", false, "more than a host and a port"},
		"what is no URL":            {"https://etcd 1:2379", false, "is not an endpoint"},
		"a port that is not":        {"https://etcd-1.example:client", false, "is not an endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			err := endpoint.Check(c.endpoint, c.insecure, "store.etcd.insecure")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Check(%q, %t) = %v, want %q", c.endpoint, c.insecure, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("Check() = %v, want it not to repeat a password", err)
			}
		})
	}
}

func TestOnlyHttpIsPlain(t *testing.T) {
	for text, want := range map[string]bool{
		"http://127.0.0.1:2379": true, "HTTP://etcd-1.example:2379": true,
		"https://etcd-1.example:2379": false, "HTTPS://etcd-1.example:2379": false, "https://etcd 1": false,
	} {
		if got := endpoint.Plain(text); got != want {
			t.Errorf("Plain(%q) = %t, want %t", text, got, want)
		}
	}
}

func TestAPrefixBeginsWithASlashAndEndsWithout(t *testing.T) {
	for prefix, good := range map[string]bool{
		"/hostler": true, "/fleets/north": true, "/h": true,
		"": false, "/": false, "hostler": false, "/hostler/": false, "/a//b": false, "/a b": false, "/a\n": false,
	} {
		if err := endpoint.CheckPrefix(prefix); (err == nil) != good {
			t.Errorf("CheckPrefix(%q) = %v, want it good: %t", prefix, err, good)
		}
	}
}

func TestConnectionsGoToEtcdsPort(t *testing.T) {
	for text, want := range map[string]string{
		"https://etcd-1.example":      "etcd-1.example:2379",
		"https://etcd-1.example:4001": "etcd-1.example:4001",
		"https://[2001:db8::1]":       "[2001:db8::1]:2379",
		"https://:1":                  "",
	} {
		if got, err := endpoint.Address(text); got != want || (err != nil) != (want == "") {
			t.Errorf("Address(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
}
