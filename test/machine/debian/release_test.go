package debian_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/test/machine/debian"
)

func TestPackageSourcesOfAnotherRelease(t *testing.T) {
	for name, test := range map[string]struct{ files, want map[string]string }{
		"one line a source": {
			files: map[string]string{"sources.list": `# comment
deb http://deb.example/debian bookworm main contrib
deb-src http://deb.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://deb.example/debian-security bookworm-security main
`},
			want: map[string]string{"sources.list": `deb http://deb.example/debian trixie main
deb [arch=amd64 signed-by=/k.gpg] http://deb.example/debian-security trixie-security main
`},
		},
		"stanzas": {
			files: map[string]string{"sources.list.d/debian.sources": `Types: deb deb-src
# comment
URIs: http://deb.example/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main non-free
Signed-By: /k.gpg

Types: deb
URIs: http://deb.example/debian-security
Suites: bookworm-security
Components: main
`},
			want: map[string]string{"debian.sources": `Types: deb
URIs: http://deb.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /k.gpg

Types: deb
URIs: http://deb.example/debian-security
Suites: trixie-security
Components: main
`},
		},
		"other vendors' sources are left out": {
			files: map[string]string{
				"sources.list":               "deb http://deb.example/debian trixie main\n",
				"sources.list.d/cloud.list":  "deb https://vendor.example/apt cloud-bookworm main\ndeb https://vendor.example/apt bookworm stable\n",
				"sources.list.d/x.sources":   "Types: deb\nURIs: https://vendor.example/\nSuites: nodistro\nComponents: main\n",
				"sources.list.d/readme.text": "deb http://deb.example/debian bookworm main\n",
			},
			want: map[string]string{"sources.list": "deb http://deb.example/debian trixie main\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			apt := t.TempDir()
			for path, text := range test.files {
				file := filepath.Join(apt, path)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := debian.SourcesFor("trixie", apt)
			if err != nil || !maps.Equal(got, test.want) {
				t.Errorf("sourcesFor() = %q, %v, want %q", got, err, test.want)
			}
		})
	}
	if got, err := debian.SourcesFor("trixie", t.TempDir()); err == nil {
		t.Errorf("sourcesFor() of a host without Debian's sources = %q, want an error", got)
	}
}
