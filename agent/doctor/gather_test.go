package doctor_test

import (
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/systemd"
)

func TestADropInCountsForWhatItSays(t *testing.T) {
	const (
		etc      = "/etc/systemd/system/cri-containerd-.scope.d/10-hostler.conf"
		packaged = "/usr/lib/systemd/system/cri-containerd-.scope.d/10-hostler.conf"
		text     = "# Before=hostler.service\n[Unit]\nBefore = other.service hostler.service\n"
	)
	for _, c := range []struct {
		name                  string
		files                 map[string]string // contents; a link to /dev/null is "mask"
		wantOrders, wantBlank string
	}{
		{"there is none", nil, "", ""},
		{"the package's orders", map[string]string{packaged: text}, packaged, ""},
		{"an administrator's hides the package's", map[string]string{packaged: "", etc: text}, etc, ""},
		{"a mask hides the package's", map[string]string{packaged: text, etc: "mask"}, "", etc},
		{"an empty file is a mask, too", map[string]string{packaged: text, etc: ""}, "", etc},
		{"a comment orders nothing", map[string]string{packaged: "[Unit]\n#Before=hostler.service\n"}, "", packaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for path, content := range c.files {
				path = filepath.Join(root, path)
				err := os.MkdirAll(filepath.Dir(path), 0o755)
				if err == nil && content == "mask" {
					err = os.Symlink(os.DevNull, path)
				} else if err == nil {
					err = os.WriteFile(path, []byte(content), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			nowhere := filepath.Join(root, "no-socket")
			logind := systemd.NewLogind(systemd.LogindOptions{Address: "unix:path=" + nowhere, Root: root})
			var f doctor.Facts
			doctor.Sources{Logind: logind, Manager: systemd.NewManager(nowhere), Root: root}.Gather(t.Context(), &f)
			if orders, blank := f.Systemd.DropIns["cri-containerd"], f.Systemd.Blank["cri-containerd"]; orders != c.wantOrders || blank != c.wantBlank {
				t.Errorf("Gather() finds that %q orders and %q does not, want %q and %q", orders, blank, c.wantOrders, c.wantBlank)
			}
		})
	}
}
