package doctor_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/systemd"
)

// found returns a check of the report; the zero value if it is missing.
func found(r doctor.Report, name string) doctor.Check {
	i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == name })
	if i < 0 {
		return doctor.Check{}
	}
	return r.Checks[i]
}

func TestACommandReportsAnAgentOfAnotherVersion(t *testing.T) {
	for _, c := range []struct {
		name, agent, server, program string
		want                         doctor.Status
		message, hint                string
	}{
		{"the same", "1.2.3", "", "1.2.3", doctor.OK, "agent and program are 1.2.3", ""},
		{"the same with a server", "1.2.3", "1.2.3", "1.2.3", doctor.OK, "agent, server and program are 1.2.3", ""},
		{"an agent of before", "1.2.2", "1.2.3", "1.2.3", doctor.Warn, "the running agent is 1.2.2, the program on disk is 1.2.3", "hostler config check; if that finds no error: systemctl restart hostler, which stops no container"},
		{"an older server", "1.2.3", "1.2.2", "1.2.3", doctor.Warn, "the running server is 1.2.2, the program on disk is 1.2.3", "hostler config check --server; if that finds no error: systemctl restart hostler-server"},
		{"a newer server, after a downgrade", "1.2.2", "1.2.3", "1.2.2", doctor.Warn, "the running server is 1.2.3, the program on disk is 1.2.2", "hostler config check --server; if that finds no error: systemctl restart hostler-server"},
		{"a server alone", "", "1.2.2", "1.2.3", doctor.Warn, "the running server is 1.2.2", "systemctl restart hostler-server"},
		{"no agent", "", "", "1.2.3", "", "", ""},
		{"an agent that does not report its version", "", "", "", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			if c.server != "" {
				f = serving()
				f.Server.Status.Version = c.server
			}
			f.Agent.Version = c.agent
			r := doctor.Examine(f)
			seen := r.CheckVersion(c.program)
			got := found(seen, "version")
			if got.Status != c.want || !strings.Contains(got.Message, c.message) || !strings.HasSuffix(got.Hint, c.hint) || (got.Hint != "") != (c.want == doctor.Warn) {
				t.Errorf("CheckVersion(%q) = %+v, want %q with %q and %q", c.program, got, c.want, c.message, c.hint)
			}
			if c.want == doctor.Warn && seen.Checks[0].Name != "version" {
				t.Errorf("CheckVersion(%q) begins with %s, want the worst first", c.program, seen.Checks[0].Name)
			}
			if found(r, "version").Status != "" {
				t.Errorf("CheckVersion(%q) has changed the report that it was given", c.program)
			}
		})
	}
}

func TestConfigOfAService(t *testing.T) {
	for _, c := range []struct {
		name string
		run  systemd.Run
		want string
	}{
		{"the packaged unit", systemd.Run{Commands: [][]string{{"/usr/bin/hostler", "agent"}}}, ""},
		{"no unit", systemd.Run{}, ""},
		{"a flag", systemd.Run{Commands: [][]string{{"/usr/bin/hostler", "agent", "--config", "/srv/a.yaml"}}}, "/srv/a.yaml"},
		{"a flag in one word", systemd.Run{Commands: [][]string{{"/usr/bin/hostler", "agent", "--config=/srv/a.yaml"}}}, "/srv/a.yaml"},
		{"a flag without a file", systemd.Run{Commands: [][]string{{"/usr/bin/hostler", "agent", "--config"}}}, ""},
		{"the environment", systemd.Run{Environment: []string{"A=b", "HOSTLER_CONFIG=/srv/b.yaml"}}, "/srv/b.yaml"},
		{"a flag beats the environment", systemd.Run{Environment: []string{"HOSTLER_CONFIG=/srv/b.yaml"}, Commands: [][]string{{"hostler", "agent", "--config", "/srv/a.yaml"}}}, "/srv/a.yaml"},
		{"a name below the folder in which services begin", systemd.Run{Environment: []string{"HOSTLER_CONFIG=srv/b.yaml"}}, "/srv/b.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := doctor.ConfigOf(c.run); got != c.want {
				t.Errorf("ConfigOf(%+v) = %q, want %q", c.run, got, c.want)
			}
		})
	}
}

// runc and crun have no images, only directories of containers.
func TestARuntimeWithoutImagesNeedsNoImageFilesystem(t *testing.T) {
	for _, c := range []struct {
		name     string
		runtimes []string
		want     doctor.Status
	}{
		{"runc alone", []string{"runc"}, ""},
		{"runc and crun", []string{"runc", "crun"}, ""},
		{"one beside it who has named none", []string{"runc", "containerd"}, doctor.Warn},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			f.Machine.ImageFilesystems, f.Runtimes.List = nil, nil
			for _, name := range c.runtimes {
				f.Runtimes.List = append(f.Runtimes.List, doctor.Runtime{Name: name, Ready: true})
			}
			if got := found(doctor.Examine(f), "image-filesystem"); got.Status != c.want {
				t.Errorf("check %+v, want it %q", got, c.want)
			}
		})
	}
}

func TestRootlessPodmanIsMentioned(t *testing.T) {
	f := healthy()
	f.Runtimes.PodmanUsers = []string{"1000", "1001"}
	if got := found(doctor.Examine(f), "podman"); got.Status != doctor.OK || !strings.Contains(got.Message, "are not managed") || !strings.Contains(got.Message, "1000, 1001") {
		t.Errorf("check %+v, want it to name the users whose containers are left alone", got)
	}
}

func TestAGrantWithoutLimitIsReported(t *testing.T) {
	f := healthy()
	f.Logind.Granted, f.Logind.Files.Effective.Max = math.MaxInt64, math.MaxInt64
	for _, name := range []string{"delay", "delay-files"} {
		if got := found(doctor.Examine(f), name); got.Status != doctor.OK || !strings.Contains(got.Message, "time without limit") {
			t.Errorf("check %+v, want it ok, and time without limit", got)
		}
	}
}

func TestTheRemainingLifetimeOfACertificateIsReadable(t *testing.T) {
	for left, want := range map[time.Duration]string{
		100*24*time.Hour + time.Hour:  "for 100 days more",
		30*time.Hour + 20*time.Second: "for 30h0m0s more",
	} {
		now := time.Now()
		f := healthy()
		f.Cluster = &doctor.Cluster{Now: now, Certificate: &doctor.Certificate{Begins: now.Add(-time.Minute), Ends: now.Add(left)}}
		f.Etcd = &doctor.Etcd{Certificate: &doctor.Certificate{Begins: now.Add(-time.Minute), Ends: now.Add(left + 2*time.Second)}}
		for _, name := range []string{"cluster-credentials", "etcd-credentials"} {
			if got := found(doctor.Examine(f), name); got.Status != doctor.OK || !strings.Contains(got.Message, want) {
				t.Errorf("check %+v, want it ok, and %q", got, want)
			}
		}
	}
}
