//go:build integration

package bench_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// process is a process whose usage is measured.
type process struct {
	b   *testing.B
	pid int
}

// processorSeconds returns the processor time of its threads so far.
func (p process) processorSeconds() float64 {
	p.b.Helper()
	text := p.proc("stat")
	// Fields are counted after the name, which may contain anything.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const utime, stime, ticksPerSecond = 14 - 3, 15 - 3, 100 // proc_pid_stat(5); USER_HZ
	return (parse(p.b, fields[utime]) + parse(p.b, fields[stime])) / ticksPerSecond
}

// memory returns fields of smaps_rollup by name, in bytes.
func (p process) memory() map[string]float64 {
	p.b.Helper()
	fields := map[string]float64{}
	for line := range strings.Lines(p.proc("smaps_rollup")) {
		if words := strings.Fields(line); len(words) == 3 && words[2] == "kB" {
			fields[strings.TrimSuffix(words[0], ":")] = parse(p.b, words[1]) * 1024
		}
	}
	return fields
}

func (p process) proc(name string) string {
	p.b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.pid, name))
	check(p.b, err)
	return string(text)
}
