//go:build integration

package machine_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

const (
	// heeds ends on SIGTERM, deaf only on SIGKILL.
	heeds = `sh -c "trap 'exit 0' TERM; while :; do sleep 0.2; done"`
	deaf  = `sh -c "trap '' TERM; while :; do sleep 0.2; done"`
)

// inDiary ends on SIGTERM, and records the time. The boot does not matter here, and is unknown to
// it.
func inDiary(pod string) string { return strings.Join(diaryCommand(pod), " ") + " -boot any" }

// asUnit runs a container in a unit, with Quadlet if it exists. systemd restarts it whenever it
// ends. The stop timeout of the unit is a minute longer than the container's, as `podman generate
// systemd` sets it.
func asUnit(m *machine.Machine, name, program string, stopSeconds int, label string) {
	stop := strconv.Itoa(stopSeconds)
	if m.Options.Release == machine.Debian12 {
		m.Run(`set -e
			podman create --quiet --name ` + name + ` --stop-timeout ` + stop + ` --label ` + label + podmanVolumes() + ` ` + job.Image + ` ` + program + `
			podman generate systemd --new --name ` + name + ` --container-prefix= --separator= --restart-policy=always --stop-timeout ` + stop + ` >/etc/systemd/system/` + name + `.service
			podman rm ` + name + `
			systemctl daemon-reload
			systemctl enable --now ` + name)
		return
	}
	m.Write("/etc/containers/systemd/"+name+".container", `[Container]
Image=`+job.Image+`
ContainerName=`+name+`
Exec=`+program+`
Label=`+label+`
Volume=`+strings.Join(diaryVolumes(), "\nVolume=")+`
StopTimeout=`+stop+`
[Service]
Restart=always
TimeoutStopSec=`+strconv.Itoa(stopSeconds+60)+`
[Install]
WantedBy=multi-user.target
`)
	m.Run("systemctl daemon-reload && systemctl start " + name)
}

// podmanVolumes returns the flags of the volumes with which a container records its events.
func podmanVolumes() string { return " --volume " + strings.Join(diaryVolumes(), " --volume ") }

// TestContainersOfUnitsStayDown stops a Podman whose containers systemd would restart: manually and
// with the machine, each time before the critical ones. After a boot, containers of units start as
// enabled, and others by their restart policy.
func TestContainersOfUnitsStayDown(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Config = "shutdown: {gracePeriod: 6m, gracePeriodCriticalPods: 1m}\n"
		o.Files = machine.PodmanFiles()
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now podman.socket podman-restart.service && mkdir -p " + job.Dir + " && podman load --quiet --input " + job.ImageArchive)
		asUnit(m, "web", inDiary("web"), 50, "hostler.io/grace-period=40s")
		// podman-compose names an instance of its template that may not be enabled.
		m.Write("/etc/systemd/system/podman-compose@.service", "[Service]\nExecStart=podman-compose up\n[Install]\nWantedBy=multi-user.target\n")
		// This container does not name its unit.
		m.Run(`set -e
			podman create --quiet --name old ` + job.Image + ` ` + heeds + `
			podman generate systemd --name old --restart-policy=always >/etc/systemd/system/container-old.service
			systemctl daemon-reload
			systemctl enable --now container-old`)
		unitsComeBack(t, m)
		asUnit(m, "stubborn", deaf, 600, "hostler.io/grace-period=2s")
		asUnit(m, "hasty", deaf, 3, "hostler.io/grace-period=20m") // Podman kills it
		units := []string{"web", "stubborn", "hasty", "container-old"}
		for name, flags := range map[string]string{
			"kept": "unless-stopped", "away": "unless-stopped",
			"composed": "unless-stopped --label PODMAN_SYSTEMD_UNIT=podman-compose@shop.service",
		} {
			m.Run("podman run --quiet --detach --name " + name + " --restart " + flags + " " + job.Image + " " + heeds)
		}
		m.Run("podman run --quiet --detach --name alone --restart always --label hostler.io/critical=true" + podmanVolumes() + " " + job.Image + " " + inDiary("alone"))
		m.Eventually("all are listed", func() bool {
			pods := m.Run("hostler ps || true") // a Podman that is starting something answers late
			return !slices.ContainsFunc([]string{"web", "stubborn", "hasty", "old", "alone", "kept", "away", "composed"}, func(name string) bool { return !strings.Contains(pods, name) })
		})
		m.Run("podman stop away")
		m.Eventually("the folder in which ends are written is watched", func() bool {
			return m.Run(`grep -h "^inotify.* ino:$(printf %x $(stat -c %i /run/libpod/exits)) " /proc/$(systemctl show -P MainPID hostler)/fdinfo/* || true`) != ""
		})
		unitsArePlanned(t, m)
		each := func(property string) string {
			var all []string
			for _, unit := range units {
				all = append(all, strings.TrimSpace(m.Run("systemctl show -P "+property+" "+unit)))
			}
			return strings.Join(all, " ")
		}

		m.Run("hostler drain --all")
		if running := strings.TrimSpace(m.Run("podman ps --quiet")); running != "" {
			t.Errorf("after hostler drain %q run, want none", running)
		}
		m.Eventually("the units are down", func() bool {
			return strings.TrimSpace(strings.NewReplacer("inactive", "", "failed", "").Replace(each("ActiveState"))) == ""
		})
		if restarts := each("NRestarts"); restarts != "0 0 0 0" {
			t.Errorf("the units were started again %s times, want never", restarts)
		}

		m.Run("systemctl start " + strings.Join(units, " ") + " && podman start alone kept composed && hostler uncordon")
		m.Eventually("hostler knows those that run now, and no others", func() bool {
			var known []string
			for _, pod := range writtenDown(t, m) {
				known = append(known, pod.ID)
			}
			running := strings.Fields(m.Run("podman ps --quiet --no-trunc"))
			slices.Sort(known)
			slices.Sort(running)
			return len(running) == 7 && slices.Equal(known, running)
		})
		m.GoesDown("systemctl reboot")
		last := m.LastShutdown()
		if last == nil || len(last.Pods) != 7 {
			t.Fatalf("LastShutdown() = %+v, want one of seven pods", last)
		}
		drained := m.Status().Shutdown.Drained
		if drained == nil || drained.Trigger != journal.TriggerManualAll || len(drained.Pods) != 7 || drained.Killed() != 2 {
			t.Errorf("Status().Shutdown.Drained = %+v, want the drain before, of seven pods", drained)
		}
		if output := m.Hostler("ps", "--last-shutdown"); !strings.Contains(output, "manual drain ") {
			t.Errorf("hostler ps --last-shutdown does not show the drain:\n%s", output)
		}
		for _, p := range last.Pods {
			want := journal.Stopped
			if p.Name == "stubborn" || p.Name == "hasty" { // the unit of stubborn would wait for it for ten minutes
				want = journal.Killed
			}
			if p.Outcome != want {
				t.Errorf("%s is %v on record, want it %v", p.Name, p.Outcome, want)
			}
		}
		names := func() []string {
			running := strings.Fields(m.Run("podman ps --format '{{.Names}}'"))
			slices.Sort(running)
			return running
		}
		back := []string{"alone", "composed", "hasty", "kept", "old", "stubborn", "web"}
		m.Eventually("what is to run is back", func() bool {
			return each("ActiveState") == "active active active active" && slices.Equal(names(), back)
		})
		work := m.Work()
		for i, when := range []string{"hostler drain", "the reboot"} {
			web, alone := work.Pod("web")[2:], work.Pod("alone") // the first two lives are those of unitsComeBack
			if len(web) <= i || len(alone) <= i || web[i].CutOff() || alone[i].CutOff() || alone[i].Term().Before(web[i].Gone()) {
				t.Errorf("at %s web, which is a unit's, and alone, which is critical, ended so, want one after the other:\n%s", when, work)
			}
		}
		var restarts []journal.Restart
		m.Eventually("it is settled what is started again", func() bool {
			restarts = m.Status().Shutdown.Restarts
			return len(restarts) > 0 && !slices.ContainsFunc(restarts, func(r journal.Restart) bool { return r.Outcome == "" })
		})
		var started []string
		for _, r := range restarts {
			if r.Outcome == journal.Restarted {
				started = append(started, r.Name)
			}
		}
		slices.Sort(started)
		if want := []string{"composed", "kept"}; !slices.Equal(started, want) || !slices.Equal(names(), back) {
			t.Errorf("after the boot %v run, Status().Shutdown.Restarts = %+v, want hostler to have started %v alone, and %v to run", names(), restarts, want, back)
		}
	})
}

// unitsArePlanned checks which unit ends each container, and its time: no more than its unit
// allows, whatever its label says.
func unitsArePlanned(t *testing.T, m *machine.Machine) {
	t.Helper()
	awaitPlan(m, map[string]string{
		"web": "web.service 40s", "stubborn": "stubborn.service 2s", "hasty": "hasty.service 1m3s", "old": "container-old.service 30s",
		"alone": " 30s", "kept": " 30s", "composed": " 30s",
	})
	text := m.Hostler("shutdown", "plan")
	if want := "hasty (1m3s of 20m0s, by hasty.service, limited by unit hasty.service)"; !strings.Contains(text, want) {
		t.Errorf("hostler shutdown plan lacks %q:\n%s", want, text)
	}
}

// awaitPlan waits until exactly these containers are planned, each with its unit, if it has one,
// and its time. hostler does not wait for a busy systemd.
func awaitPlan(m *machine.Machine, want map[string]string) {
	m.Eventually(fmt.Sprintf("the plan is %v", want), func() bool {
		got := map[string]string{}
		for _, phase := range machine.Answer[plan.Plan](m, "shutdown", "plan").Phases {
			for _, pod := range phase.Pods {
				for _, c := range pod.Containers {
					got[c.Name] = c.Unit + " " + c.Grace.Duration.String()
				}
			}
		}
		return maps.Equal(got, want)
	})
}

// unitsComeBack cancels shutdowns that have stopped web and old, which belong to units: these are
// started again, even if no agent runs at the cancellation. Others were not stopped and continue to
// run.
func unitsComeBack(t *testing.T, m *machine.Machine) {
	t.Helper()
	m.Run("podman run --quiet --detach --name slow --label hostler.io/grace-period=5m " + job.Image + " " + deaf)
	defer m.Run("podman kill slow && podman rm slow") // Podman 4 would remove one that is still stopping
	slow := m.Run("podman inspect --format '{{.State.StartedAt}}' slow")
	m.Write("/etc/systemd/system/beside.service", "[Unit]\nRequires=web.service\nAfter=web.service\n[Service]\nExecStart=sleep infinity\n") // systemd stops it with web
	m.Run("systemctl daemon-reload && systemctl start beside")
	defer m.Run("systemctl stop beside && rm /etc/systemd/system/beside.service && systemctl daemon-reload")
	const allRun = "active\nactive\nactive\n"
	units := func() string { return m.Run("systemctl is-active web container-old beside; true") }
	for i, how := range []string{restartLogind, killAgent + "; " + restartLogind} {
		m.Eventually("web, old and slow are listed", func() bool {
			pods := m.Run("hostler ps || true")
			return strings.Contains(pods, "web") && strings.Contains(pods, "old") && strings.Contains(pods, "slow")
		})
		m.AwaitArmed()
		m.Run("systemctl reboot")
		m.Eventually("the units of web and old are stopped", func() bool {
			return units() != allRun && m.Run("podman ps --quiet --filter name=web --filter name=old") == ""
		})
		m.Run("systemctl reset-failed systemd-logind; " + how)
		m.Eventually("web and old run again after "+how, func() bool {
			return units() == allRun && len(strings.Fields(m.Run("podman ps --quiet --filter name=web --filter name=old"))) == 2
		})
		awaitState(t, m, shutdown.Armed)
		m.Eventually("it is web's next life", func() bool { return len(m.Work().Pod("web")) == i+2 })
		if now := m.Run("podman inspect --format '{{.State.StartedAt}}' slow"); now != slow {
			t.Errorf("after %s slow runs since %s, want it to run on since %s", how, now, slow)
		}
	}

	const dropIn = "/run/systemd/system/web.service.d/broken.conf"
	m.Write(dropIn, "[Service]\nRestart=no\nExecStartPre=false\n")
	m.Run("systemctl daemon-reload")
	m.AwaitArmed()
	m.Run("systemctl reboot")
	m.Eventually("the unit of web is stopped", func() bool { return m.Run("systemctl is-active web; true") != "active\n" })
	m.Run("systemctl reset-failed systemd-logind; " + restartLogind)
	reports := func(want ...shutdown.NotStarted) func() bool {
		return func() bool {
			s, err := m.TryStatus()
			return err == nil && slices.Equal(s.Shutdown.NotStarted, want)
		}
	}
	m.Eventually("status says that web fails", reports(
		shutdown.NotStarted{Unit: "beside.service", Reason: "a dependency did not start, or a condition of the unit is not met", Failed: true},
		shutdown.NotStarted{Unit: "web.service", Reason: "exit-code", Failed: true}))
	m.Run("rm " + dropIn + " && systemctl daemon-reload && systemctl start web beside")
	m.Eventually("status does not report it any more", reports())
	awaitState(t, m, shutdown.Armed)
}
