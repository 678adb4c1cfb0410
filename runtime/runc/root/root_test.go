package root_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/runtime/runc/root"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ endpoint, want, wantErr string }{
		"a path":                        {"/run/runc", "/run/runc", ""},
		"a path with a slash behind it": {"/run/crun/", "/run/crun", ""},
		"a path with detours":           {"/run//x/../runc", "/run/runc", ""},
		"a path by way of a link":       {"/var/run/runc", "/run/runc", ""},
		"a URL":                         {"file:///srv/state", "", "absolute"},
		"nothing":                       {"", "", "no folder"},
		"a socket":                      {"unix:///run/runc", "", "runc has none"},
		"a relative path":               {"run/runc", "", "absolute"},
		"everything":                    {"/", "", "is not a state root"},
		"everything that runs":          {"/var/run/", "", "is not a state root"},
		"containerd's":                  {"/run/containerd/runc/k8s.io", "", "type: cri"},
		"Docker's":                      {"/var/run/docker/runtime-runc/moby", "", "type: docker"},
		"a user's":                      {"/run/user/1000/crun", "", "used by a user session"},
		"one that sounds like another":  {"/run/dockerish", "/run/dockerish", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := root.Parse(c.endpoint)
			if got != c.want || (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("Parse(%q) = %q, %v, want %q, %q", c.endpoint, got, err, c.want, c.wantErr)
			}
		})
	}
}
