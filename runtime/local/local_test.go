package local_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/runtime/local"
)

func TestParseEndpoint(t *testing.T) {
	for name, c := range map[string]struct{ endpoint, want, wantErr string }{
		"a URL":                       {"unix:///run/crio/crio.sock", "/run/crio/crio.sock", ""},
		"a path":                      {"/run/crio/crio.sock", "/run/crio/crio.sock", ""},
		"a path with detours":         {"/run//crio/../crio/crio.sock", "/run/crio/crio.sock", ""},
		"nothing":                     {"", "", "empty"},
		"a TCP address":               {"tcp://127.0.0.1:2375", "", "only unix sockets"},
		"a Windows pipe":              {"npipe:////./pipe/containerd", "", "only unix sockets"},
		"a relative path":             {"run/crio.sock", "", "absolute"},
		"a URL with a relative path":  {"unix://crio.sock", "", "absolute"},
		"a URL without its slashes":   {"unix:/run/crio.sock", "", "absolute"},
		"a folder":                    {"unix:///run/crio/", "", "folder"},
		"a path longer than sun_path": {"/" + strings.Repeat("x", 107), "", "at most 107 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := local.ParseEndpoint(c.endpoint)
			if got != c.want || (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("ParseEndpoint(%q) = %q, %v, want %q, %q", c.endpoint, got, err, c.want, c.wantErr)
			}
		})
	}
}

func TestExisting(t *testing.T) {
	there := t.TempDir()
	for folder, want := range map[string]string{there: there, there + "/not/made/yet": there, "/": "/"} {
		if got := local.Existing(folder); got != want {
			t.Errorf("Existing(%q) = %q, want %q", folder, got, want)
		}
	}
}
