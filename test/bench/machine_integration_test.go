//go:build integration

package bench_test

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/test/lab"
)

// machine describes the machine of the measurements.
func machine(b *testing.B, c *lab.Containerd) string {
	b.Helper()
	var kernel unix.Utsname
	check(b, unix.Uname(&kernel))
	version, err := c.Runtime.Version(context.Background(), &cri.VersionRequest{})
	check(b, err)
	info, err := os.Stat(binary)
	check(b, err)
	return fmt.Sprintf("%d CPUs, %s, Linux %s, containerd %s, hostler of %.1f MB, load average %s",
		goruntime.NumCPU(), osName(b), unix.ByteSliceToString(kernel.Release[:]), version.RuntimeVersion, float64(info.Size())/megabyte, load(b))
}

func osName(b *testing.B) string {
	b.Helper()
	text, err := os.ReadFile("/etc/os-release")
	check(b, err)
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(name, "\"\n")
		}
	}
	return "unknown system"
}

// load returns the load average: on a busy machine, figures are worse.
func load(b *testing.B) string {
	b.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	check(b, err)
	return strings.Fields(string(text))[0]
}
