//go:build integration

package rebooters_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/agent/rebooters"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/test/machine/debian"
)

const automatic = "Unattended-Upgrade::Automatic-Reboot"

// find lists what reboots a host whose files are below root.
func find(t *testing.T, root string) []rebooters.Rebooter {
	t.Helper()
	found, err := rebooters.Host{Root: root, Proc: t.TempDir(), Files: new(bounded.Files)}.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestOnDebian reads the files of Debian's packages, unchanged and with automatic reboots switched on.
func TestOnDebian(t *testing.T) {
	for _, release := range debian.Releases() {
		t.Run("Debian "+string(release), func(t *testing.T) {
			tree, err := debian.PrepareRebooters(t.Context(), release, slog.New(slog.NewTextHandler(os.Stderr, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if found := find(t, tree); len(found) > 0 {
				t.Errorf("Find() = %v of what packages install, want nothing", found)
			}

			root := t.TempDir()
			conf, err := os.ReadFile(filepath.Join(tree, "usr/share/unattended-upgrades/50unattended-upgrades"))
			if err != nil {
				t.Fatal(err)
			}
			off := "//" + automatic + ` "false";`
			if strings.Count(string(conf), off) != 1 {
				t.Fatalf("50unattended-upgrades lacks %s:\n%s", off, conf)
			}
			write(t, filepath.Join(root, "usr/bin/unattended-upgrade"), "")
			write(t, filepath.Join(root, "etc/apt/apt.conf.d/50unattended-upgrades"), strings.Replace(string(conf), off, automatic+` "true";`, 1))
			if found := find(t, root); len(found) != 1 || !strings.HasSuffix(found[0].Name, "50unattended-upgrades)") {
				t.Errorf("Find() = %v where unattended-upgrades reboots, want its file", found)
			}
		})
	}
}

// TestAptReadsTheSame compares Find with apt-config on the same files.
func TestAptReadsTheSame(t *testing.T) {
	for _, files := range []map[string]string{
		{},
		{"50": automatic + ` "true";`},
		{"50": automatic + " yes;"},
		{"50": automatic + ` "1";`, "60": "// " + automatic + ` "0";`},
		{"50": automatic + ` "2";`},
		{"50": automatic + ` "True";`, "40": automatic + ` "no";`},
		{"50": automatic + ` "on";`, "60": automatic + ` "off";`},
		{"50": `Unattended-Upgrade { Mail "root"; Automatic-Reboot "true"; };`},
		{"50": "unattended-upgrade {\n  Origins-Pattern { \"a\"; \"b;c}\"; };\n  automatic-reboot\n\"enable\"; // why\n}"},
		{"50": `Unattended-Upgrade::Other { Automatic-Reboot "true"; };`},
		{"50": automatic + ` "true";`, "60": "#clear Unattended-Upgrade;"},
		{"50": automatic + ` "true";`, "60": "#clear " + automatic + ";"},
		{"50": automatic + ` "true";`, "60": "#clear Unattended;"},
		{"50": automatic + ` "true";`, "60": "#" + automatic + ` "false";` + "\n#close the list; {\n"},
		{"50": "/* " + automatic + ` "false"; */` + automatic + ` "true"; /*` + "\n" + automatic + ` "no";` + "\n*/"},
		{"50.conf": automatic + ` "true";`, "60.bak": automatic + ` "false";`, ".hidden": automatic + ` "false";`},
		{"50": automatic + ` "false";`, "../apt.conf": automatic + ` "true";`},
		{"50": `Acquire::http::Proxy "http://a.example//b"; ` + automatic + ` "true";`},
		{"50": automatic + `-Time "02:00"; ` + automatic + `-WithUsers "true";`},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "usr/bin/unattended-upgrade"), "")
		write(t, filepath.Join(root, "apt"), fmt.Sprintf("Dir \"%s/\";\n", root))
		for name, text := range files {
			write(t, filepath.Join(root, "etc/apt/apt.conf.d", name), text)
		}
		cmd := exec.CommandContext(t.Context(), "apt-config", "shell", "REBOOT", automatic+"/b")
		cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(root, "apt"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", files, err, out)
		}
		want := strings.Contains(string(out), "REBOOT='true'")
		if found := find(t, root); (len(found) == 1) != want {
			t.Errorf("Find() of %v = %v, where apt says %q", files, found, out)
		}
	}
}
