package gather

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/status/probe"
)

// Parts are added to a running host, with a check every ten seconds.
func TestHotpluggedPartsAreSeenAtTheNextCheck(t *testing.T) {
	root := t.TempDir()
	if err := os.CopyFS(root, os.DirFS("../../test/hosts/small-vm")); err != nil {
		t.Fatal(err)
	}
	write := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const online, meminfo, pages = "sys/devices/system/cpu/online", "proc/meminfo", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	reader, err := probe.New(root)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		machine, err := reader.Machine()
		if err != nil {
			t.Fatal(err)
		}
		f := NewFacts(FactsOptions{
			Reader: reader, Folder: "/", Runtimes: opened(t), Machine: machine, Guard: disarmed,
			MaxImages: func() int { return 0 },
			Stalls:    func() []string { return []string{"memory"} },
		})
		check := func(what string, cpus int, swap, hugePages uint64) {
			t.Helper()
			time.Sleep(10 * time.Second)
			facts := f.Now(t.Context(), nil)
			m := facts.Machine
			if m.CPUs != cpus || m.SwapBytes != swap || m.HugePages[0].Pages != hugePages {
				t.Errorf("%s: Now() has %d CPUs, %d bytes of swap, %+v, want %d, %d and %d pages", what, m.CPUs, m.SwapBytes, m.HugePages, cpus, swap, hugePages)
			}
			if len(facts.Stalls) != 1 || !facts.Stalls[0].Absent {
				t.Errorf("%s: Now() has stalls %+v, want those of memory, which this kernel does not report", what, facts.Stalls)
			}
		}
		const swap = 524284 << 10
		check("at first", 1, swap, 0)
		write(online, "0-1\n")
		check("after a CPU came", 2, swap, 0)
		write(meminfo, "MemTotal: 1000180 kB\nMemAvailable: 91404 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nHugetlb: 0 kB\n")
		check("after swapoff", 2, 0, 0)
		write(meminfo, "MemTotal: 1000180 kB\nMemAvailable: 91404 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nHugetlb: 4096 kB\n")
		write(pages, "2\n")
		check("after huge pages were set aside", 2, 0, 2)

		// Changes that the small files do not show are noticed later, and a failed read is
		// repeated.
		write("proc/sys/kernel/hostname", "another\n")
		check("right after something else changed", 2, 0, 2)
		if name := f.Machine().HostName; name == "another" {
			t.Errorf("Machine() has host name %s at once, want it read again only after %v", name, machineAge)
		}
		write(meminfo, "MemTotal: many kB\n")
		check("while memory cannot be counted", 2, 0, 2)
		write(meminfo, "MemTotal: 1000180 kB\nMemAvailable: 91404 kB\nSwapTotal: 0 kB\nHugetlb: 4096 kB\n")
		write(online, "0\n")
		write(pages, "many\n")
		check("after a CPU went, while huge pages cannot be counted", 2, 0, 2)
		write(pages, "2\n")
		check("once they can", 1, 0, 2)
	})
}
