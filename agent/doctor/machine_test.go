package doctor_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/systemd"
)

// found is a check of the report; the zero one where there is none.
func found(r doctor.Report, name string) doctor.Check {
	i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == name })
	if i < 0 {
		return doctor.Check{}
	}
	return r.Checks[i]
}

func TestAProgramSaysSoWhereTheAgentIsOfAnotherVersion(t *testing.T) {
	for _, c := range []struct {
		name, agent, program string
		want                 doctor.Status
		says                 string
	}{
		{"the same", "1.2.3", "1.2.3", doctor.OK, "1.2.3"},
		{"an agent of before", "1.2.2", "1.2.3", doctor.Warn, "the agent that runs is 1.2.2, and the program on disk 1.2.3"},
		{"no agent", "", "1.2.3", "", ""},
		{"an agent that does not tell", "", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			f.Agent.Version = c.agent
			r := doctor.Examine(f)
			seen := r.SeenBy(c.program)
			got := found(seen, "version")
			if got.Status != c.want || !strings.Contains(got.Message, c.says) || (got.Hint != "") != (c.want == doctor.Warn) {
				t.Errorf("SeenBy(%q) = %+v, want %q with %q, and a mend with a warning", c.program, got, c.want, c.says)
			}
			if c.want == doctor.Warn && seen.Checks[0].Name != "version" {
				t.Errorf("SeenBy(%q) begins with %s, want the worst first", c.program, seen.Checks[0].Name)
			}
			if found(r, "version").Status != "" {
				t.Errorf("SeenBy(%q) has changed the report that it was given", c.program)
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

// TestCollectorsAreFoundWhereTheyAreStarted looks at cron's files and at processes; what
// timers start is asked of a real systemd in test/machine.
func TestCollectorsAreFoundWhereTheyAreStarted(t *testing.T) {
	for _, c := range []struct {
		name, path, text string
		want             string // what is found, "where: does"; empty for nothing
	}{
		{"a prune in a script", "etc/cron.daily/docker", "#!/bin/sh\n# tidy up\ndocker system prune -af\n", "/etc/cron.daily/docker: docker system prune"},
		{"a prune in a table, with flags before", "etc/crontab", "0 3 * * * root /usr/bin/docker --log-level error image prune -a -f\n", "/etc/crontab: docker --log-level error image prune"},
		{"a person's own table", "var/spool/cron/crontabs/root", "@daily podman container prune -f\n", "/var/spool/cron/crontabs/root: podman container prune"},
		{"removal by list", "etc/cron.weekly/rmi", "docker rmi $(docker images -q)\n", "/etc/cron.weekly/rmi: docker rmi"},
		{"images of CRI", "etc/cron.d/cri", "0 4 * * * root crictl rmi --prune\n", "/etc/cron.d/cri: crictl rmi"},
		{"images of containerd", "etc/cron.d/n", "0 4 * * * root nerdctl -n k8s.io system prune -f\n", "/etc/cron.d/n: nerdctl -n k8s.io system prune"},
		{"docker-gc", "etc/cron.hourly/gc", "exec /usr/sbin/docker-gc\n", "/etc/cron.hourly/gc: docker-gc"},
		{"a line that is commented out", "etc/cron.daily/off", "  # docker system prune -af\n", ""},
		{"a command that removes nothing", "etc/cron.daily/ps", "docker ps | grep prune\n", ""},
		{"a prune of something else", "etc/cron.daily/git", "git remote prune origin; docker ps\n", ""},
		{"volumes and networks, which are not hostler's", "etc/cron.daily/vol", "docker volume prune -f; docker network prune -f\n", ""},
		{"a program", "etc/cron.daily/elf", "\x7fELF docker system prune\n", ""},
		{"a file that is too large for a script", "etc/cron.daily/large", "docker system prune\n" + strings.Repeat("#\n", 64<<10), ""},
		{"a process", "proc/812/comm", "watchtower\n", "process watchtower, pid 812: "},
		{"another process", "proc/813/comm", "towerwatch\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, c.path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.text), 0o755); err != nil {
				t.Fatal(err)
			}
			nowhere := filepath.Join(root, "no-socket")
			logind := systemd.NewLogind(systemd.LogindOptions{Address: "unix:path=" + nowhere, Root: root})
			var f doctor.Facts
			doctor.Sources{Logind: logind, Manager: systemd.NewManager(nowhere), Root: root}.Gather(t.Context(), &f)
			got := ""
			for _, found := range f.Collectors {
				got += found.Where + ": " + found.Does
				if found.Mend == "" {
					t.Errorf("%+v has no mend", found)
				}
			}
			if got != c.want {
				t.Errorf("Gather() finds collectors %q, want %q", got, c.want)
			}
		})
	}
}

func TestTimersThatCollect(t *testing.T) {
	root := t.TempDir()
	script := "/usr/local/sbin/tidy"
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(script)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, script), []byte("#!/bin/sh\ncrictl rmi --prune\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(commands ...[]string) []systemd.Run { return []systemd.Run{{Commands: commands}} }
	got := doctor.TimedCollectors(root, []systemd.Timer{
		{Name: "apt-daily.timer", Runs: run([]string{"/usr/lib/apt/apt.systemd.daily", "update"})},
		{Name: "docker-prune.timer", Runs: run([]string{"/usr/bin/docker", "system", "prune", "-af"})},
		{Name: "podman-auto-update.timer", Runs: run([]string{"/usr/bin/podman", "auto-update"}, []string{"/usr/bin/podman", "image", "prune", "-f"})},
		{Name: "tidy.timer", Runs: run([]string{script})},
		{Name: "nothing.timer"},
	})
	want := []string{"docker-prune.timer: docker system prune", "podman-auto-update.timer: podman auto-update", "tidy.timer: crictl rmi"}
	var list []string
	for _, c := range got {
		list = append(list, c.Where+": "+c.Does)
		if c.Mend != "systemctl disable --now "+c.Where {
			t.Errorf("the mend of %s is %q", c.Where, c.Mend)
		}
	}
	if !slices.Equal(list, want) {
		t.Errorf("TimedCollectors() = %q, want %q", list, want)
	}
}

// runc and crun keep folders of containers, and no images.
func TestWhoKeepsNoImagesHasNoFilesystemOfThem(t *testing.T) {
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

// Debian enables podman-auto-update.timer on each host with Podman.
func TestAutoUpdatesAreTheContainersOwn(t *testing.T) {
	podman := func(arguments ...string) []string { return append([]string{"/usr/bin/podman"}, arguments...) }
	for _, c := range []struct {
		name, timer string
		commands    [][]string
		want        doctor.Status
		says        string
	}{
		{"as Podman comes", "podman-auto-update.timer", [][]string{podman("auto-update"), podman("image", "prune", "-f")}, doctor.OK, "podman-auto-update.timer runs `podman auto-update`"},
		{"with a drop-in that has all images removed", "podman-auto-update.timer", [][]string{podman("auto-update"), podman("image", "prune", "-af")}, doctor.Warn, "podman-auto-update.timer runs `podman image prune`"},
		{"a timer of somebody's own", "tidy.timer", [][]string{podman("image", "prune", "-f")}, doctor.Warn, "tidy.timer runs `podman image prune`"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			f.Collectors = doctor.TimedCollectors(t.TempDir(), []systemd.Timer{{Name: c.timer, Runs: []systemd.Run{{Commands: c.commands}}}})
			if got := found(doctor.Examine(f), "collectors"); got.Status != c.want || !strings.Contains(got.Message, c.says) {
				t.Errorf("check %+v, want it %s, with %q", got, c.want, c.says)
			}
		})
	}
}

// A script may lie on a network mount that does not answer.
func TestAFileThatDoesNotAnswerIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		list, untold := doctor.Within(t.Context(), time.Second, func() []doctor.Collector { <-hangs; return nil })
		if list != nil || !untold {
			t.Errorf("Within() = %v, %t, want it to give up", list, untold)
		}
	})
	f := healthy()
	f.CollectorsUntold = true
	if got := found(doctor.Examine(f), "collectors"); got.Status != doctor.Warn || got.Hint == "" || !strings.Contains(got.Message, "it is not known") {
		t.Errorf("check %+v, want a warning that it is not known, and a mend", got)
	}
}

// A systemd that does not answer names no timers, which is not to say that there are none.
func TestTimersThatAreNotKnownAreSaidSo(t *testing.T) {
	for _, c := range []struct {
		name       string
		systemd    doctor.Systemd
		collectors []doctor.Collector
		want       doctor.Status
		says       string
	}{
		{"systemd does not answer", doctor.Systemd{Problem: "context deadline exceeded"}, nil, doctor.Unknown, "cannot tell what timers run"},
		{"nor does it, and cron removes", doctor.Systemd{Problem: "context deadline exceeded"}, []doctor.Collector{{Where: "/etc/cron.daily/tidy", Does: "docker rmi"}}, doctor.Warn, "/etc/cron.daily/tidy"},
		{"there is none", doctor.Systemd{Problem: "no systemd manager here", Missing: true}, nil, doctor.OK, "nobody else"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			f.Systemd, f.Collectors = c.systemd, c.collectors
			if got := found(doctor.Examine(f), "collectors"); got.Status != c.want || !strings.Contains(got.Message, c.says) {
				t.Errorf("check %+v, want it %s, with %q", got, c.want, c.says)
			}
		})
	}
}

func TestUsersOwnPodmansAreMentioned(t *testing.T) {
	f := healthy()
	f.Runtimes.PodmanUsers = []string{"1000", "1001"}
	if got := found(doctor.Examine(f), "podman"); got.Status != doctor.OK || !strings.Contains(got.Message, "left alone") || !strings.Contains(got.Message, "1000, 1001") {
		t.Errorf("check %+v, want it to name the users whose containers are left alone", got)
	}
}

func TestAGrantWithoutLimitIsSaidSo(t *testing.T) {
	f := healthy()
	f.Logind.Granted, f.Logind.Files.Effective.Max = math.MaxInt64, math.MaxInt64
	for _, name := range []string{"delay", "delay-files"} {
		if got := found(doctor.Examine(f), name); got.Status != doctor.OK || !strings.Contains(got.Message, "time without limit") {
			t.Errorf("check %+v, want it ok, and time without limit", got)
		}
	}
}

func TestACertificatesRemainingLifeIsToldInWordsOfAPerson(t *testing.T) {
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
