package probe_test

import (
	"fmt"
	"io/fs"
	"reflect"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/status/probe"
)

func TestStalls(t *testing.T) {
	const some = "some avg10=1.25 avg60=2.50 avg300=33.75 total=123456\n"
	const full = "full avg10=0.10 avg60=0.20 avg300=0.30 total=789\n"
	someAverages := probe.Averages{TenSeconds: 1.25, Minute: 2.5, FiveMinutes: 33.75}
	fullAverages := probe.Averages{TenSeconds: 0.1, Minute: 0.2, FiveMinutes: 0.3}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  probe.Stall // of memory
	}{
		{"both lines", map[string]string{"proc/pressure/memory": some + full}, probe.Stall{Some: someAverages, Full: fullAverages}},
		{"a line that no kernel has yet", map[string]string{"proc/pressure/memory": some + "most avg10=x\n" + full}, probe.Stall{Some: someAverages, Full: fullAverages}},
		{"a kernel without PSI", map[string]string{"proc/meminfo": ""}, probe.Stall{Absent: true}},
		{"memory without a full line", map[string]string{"proc/pressure/memory": some}, probe.Stall{Problem: `/proc/pressure/memory has no line "some" or "full"`}},
		{"an empty file", map[string]string{"proc/pressure/memory": ""}, probe.Stall{Problem: `/proc/pressure/memory has no line "some" or "full"`}},
		{"nonsense", map[string]string{"proc/pressure/memory": "some avg10=much\n"}, probe.Stall{Problem: "read /proc/pressure/memory: strconv.ParseFloat: parsing \"\": invalid syntax"}},
		{"what is no file", map[string]string{"proc/pressure/memory/x": ""}, probe.Stall{Problem: "read /proc/pressure/memory: is a directory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Resource = "memory"
			got := reader(t, tree(t, c.files)).Stalls([]string{"memory"})
			if !reflect.DeepEqual(got, []probe.Stall{c.want}) {
				t.Errorf("Stalls() = %+v, want %+v", got, c.want)
			}
		})
	}
	got := reader(t, tree(t, map[string]string{"proc/pressure/cpu": some, "proc/pressure/io": some + full})).Stalls([]string{"io", "cpu"})
	want := []probe.Stall{{Resource: "io", Some: someAverages, Full: fullAverages}, {Resource: "cpu", Some: someAverages}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Stalls() = %+v, want %+v: before Linux 5.13 the CPUs have no full line", got, want)
	}
}

// No file in a test can fail in read(2) like that of a kernel with psi=0, so the test creates the
// error that procfs would wrap.
func TestAKernelWithPSIDisabledHasNone(t *testing.T) {
	for errno, want := range map[syscall.Errno]probe.Stall{
		unix.EOPNOTSUPP: {Resource: "io", Absent: true},
		unix.EACCES:     {Resource: "io", Problem: "read /proc/pressure/io: permission denied"},
	} {
		err := fmt.Errorf("%w: psi_stats: unavailable for %q: %w", procfs.ErrFileRead, "io", &fs.PathError{Op: "read", Path: "/proc/pressure/io", Err: errno})
		if got := probe.NewStall("io", procfs.PSIStats{}, err); got != want {
			t.Errorf("a read that ends with %v gives %+v, want %+v", errno, got, want)
		}
	}
}
