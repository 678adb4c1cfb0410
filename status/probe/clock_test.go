package probe_test

import (
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/status/probe"
)

func TestClockSet(t *testing.T) {
	for name, c := range map[string]struct {
		clocks  map[string]string // hctosys by clock
		network bool              // systemd-timesyncd has set the clock
		want    bool
	}{
		"none":                          {nil, false, false},
		"one that did":                  {map[string]string{"rtc0": "1\n"}, false, true},
		"one that came too late for it": {map[string]string{"rtc0": "0\n"}, false, false},
		"none, but the network did":     {nil, true, true},
		"the second one":                {map[string]string{"rtc0": "0\n", "rtc1": "1\n"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
				t.Fatal(err)
			}
			for clock, text := range c.clocks {
				folder := filepath.Join(root, "sys/class/rtc", clock)
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, "hctosys"), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if c.network {
				folder := filepath.Join(root, "run/systemd/timesync")
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(folder, "synchronized"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			reader, err := probe.New(root)
			if err != nil {
				t.Fatal(err)
			}
			if got := reader.ClockSet(); got != c.want {
				t.Errorf("ClockSet() = %v, want %v", got, c.want)
			}
		})
	}
}
