//go:build integration

package machine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// client starts a service that runs a container with a command that stays in the foreground.
// systemd restarts it whenever it ends.
func client(m *machine.Machine, name, command string) {
	m.Write("/etc/systemd/system/"+name+".service", `[Unit]
After=docker.service
Requires=docker.service
[Service]
ExecStart=`+command+`
WorkingDirectory=-/root/`+name+`
Restart=always
RestartSec=0
[Install]
WantedBy=multi-user.target
`)
	m.Run("systemctl daemon-reload && systemctl enable --now " + name)
}

// follower starts a service of the host that is ordered after a unit, and records when it is
// stopped.
func follower(m *machine.Machine, name, after string) {
	m.Write("/etc/systemd/system/"+name+".service", `[Unit]
After=`+after+`
Wants=`+after+`
[Service]
ExecStart=/bin/sleep infinity
ExecStop=/bin/sh -c 'sleep 0.3; date +%%s%%N >>/root/`+name+`.stops'
[Install]
WantedBy=multi-user.target
`)
	m.Run("systemctl daemon-reload && systemctl enable --now " + name)
}

// TestServicesThatRunContainersAreNotStartedAgain stops services that run Docker containers with
// its client, manually and with a reboot. Each container is sent the stop signal once, and none is
// restarted before the host is up again. Services that are ordered after them stop before them in
// the reboot, but continue to run while a person drains the host.
func TestServicesThatRunContainersAreNotStartedAgain(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		o.Config = "shutdown: {gracePeriod: 6m, gracePeriodCriticalPods: 1m}\n"
		o.Files = machine.DockerFiles(o)
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now docker.socket docker.service && docker load --quiet --input " + job.ImageArchive)
		flags := "--stop-timeout " + graceSeconds + " --network none --security-opt apparmor=unconfined --volume " + strings.Join(diaryVolumes(), " --volume ")
		units := []string{"shop", "old"}
		pods := map[string]string{"shop": "shop.service", "old": "old.service", "alone": ""} // and their units
		client(m, "shop", "/usr/bin/docker run --rm --name shop "+flags+" "+job.Image+" "+inDiary("shop"))
		m.Run("docker create --name old " + flags + " " + job.Image + " " + inDiary("old"))
		client(m, "old", "/usr/bin/docker start --attach old")
		dockerRun(m, "alone", "alone", "unless-stopped", "hostler.io/critical=true")
		if m.Options.Release != machine.Debian12 { // which has no Compose plugin for Docker
			services := map[string]any{}
			for name, needs := range map[string][]string{"db": {}, "web": {"db"}} {
				services[name] = map[string]any{
					"image": job.Image, "pull_policy": "never", "network_mode": "none", "command": strings.Fields(inDiary(name)), "volumes": diaryVolumes(),
					"stop_grace_period": graceSeconds + "s", "depends_on": needs, "container_name": name,
				}
			}
			file, err := json.Marshal(map[string]any{"services": services})
			if err != nil {
				t.Fatal(err)
			}
			m.Write("/root/store/compose.yaml", string(file))
			client(m, "store", "/usr/bin/docker compose up")
			units = append(units, "store")
			pods["db"], pods["web"] = "store.service", "store.service"
		}
		follower(m, "shop-user", "shop.service")
		follower(m, "docker-user", "docker.service")
		planned := func() {
			m.Eventually(fmt.Sprintf("the plan names the units of %v", pods), func() bool {
				got := map[string]string{}
				for _, phase := range machine.Answer[plan.Plan](m, "shutdown", "plan").Phases {
					for _, pod := range phase.Pods {
						for _, c := range pod.Containers {
							got[c.Name] = c.Unit
						}
					}
				}
				return fmt.Sprint(got) == fmt.Sprint(pods)
			})
		}
		each := func(property string) (all []string) {
			for _, unit := range units {
				all = append(all, strings.TrimSpace(m.Run("systemctl show -P "+property+" "+unit)))
			}
			return all
		}
		lives := func(want int) {
			for pod := range pods { // it runs a moment before it has recorded that
				m.Eventually(fmt.Sprintf("%s has recorded %d runs", pod, want), func() bool { return len(m.Work().Pod(pod)) >= want })
			}
			work := m.Work()
			for pod := range pods {
				got := work.Pod(pod)
				if len(got) != want || slices.ContainsFunc(got[:want-1], machine.Life.CutOff) {
					t.Errorf("%s ran %d times, want %d, and each but the last to end in time:\n%s", pod, len(got), want, work)
				}
			}
		}

		planned()
		t.Log(m.Run("hostler drain --all"))
		if running := strings.Fields(m.Run("docker ps --quiet")); len(running) > 0 {
			t.Errorf("after hostler drain %q run, want none", running)
		}
		if text := m.Run("systemctl is-active shop-user docker-user; cat /root/*.stops || true"); text != "active\nactive\n" {
			t.Errorf("after hostler drain the services of the host are %q, want them to run", text)
		}
		m.Eventually("the units are down", func() bool {
			return !slices.ContainsFunc(each("ActiveState"), func(state string) bool { return state != "inactive" && state != "failed" })
		})
		if restarts := each("NRestarts"); slices.ContainsFunc(restarts, func(n string) bool { return n != "0" }) {
			t.Errorf("the units %v were started again %v times, want never", units, restarts)
		}

		m.Eventually("no stop is held any more", func() bool {
			return strings.TrimSpace(m.Run("systemctl list-units --all --no-legend 'hostler-hold-*'; systemctl list-jobs --no-legend")) == ""
		})
		if text := m.Run("journalctl --boot --unit 'hostler-hold-*' --grep Failed || true"); strings.Contains(text, "hostler-hold") {
			t.Errorf("the holds ended with failures:\n%s", text)
		}

		m.Run("systemctl start " + strings.Join(units, " ") + " && docker start alone && hostler uncordon")
		planned()
		lives(2)
		if text := m.Hostler("shutdown", "plan"); !strings.Contains(text, "by shop.service, after shop-user.service") || !strings.Contains(text, "after docker-user.service") {
			t.Errorf("hostler shutdown plan names no services that stop before the containers:\n%s", text)
		}
		m.GoesDown("systemctl reboot")
		last := m.LastShutdown()
		names := map[string]bool{}
		if last == nil || !last.Graceful {
			t.Fatalf("LastShutdown() = %+v, want a graceful one", last)
		}
		for _, p := range last.Pods {
			if p.Outcome != journal.Stopped {
				t.Errorf("%s is %v on record, want it stopped", p.Name, p.Outcome)
			}
			names[p.Name] = true
		}
		if want := 3 + len(units) - 2; len(last.Pods) != want || len(names) != want {
			t.Errorf("on record are %+v, want %d pods, each once", last.Pods, want)
		}
		for service, pod := range map[string]string{"shop-user": "shop", "docker-user": "alone"} {
			stops := strings.Fields(m.Run("cat /root/" + service + ".stops"))
			nanoseconds, err := strconv.ParseInt(strings.Join(stops, " "), 10, 64)
			if err != nil {
				t.Errorf("%s noted the stops %q, want one", service, stops)
			} else if term := m.Work().Pod(pod)[1].Term(); !term.After(time.Unix(0, nanoseconds)) {
				t.Errorf("%s was sent the stop signal at %v, want it after the stop of %s at %v", pod, term, service, time.Unix(0, nanoseconds))
			}
		}
		m.Eventually("what is to run is back", func() bool {
			return len(strings.Fields(m.Run("docker ps --quiet"))) == len(pods)
		})
		planned()
		lives(3)
	})
}
