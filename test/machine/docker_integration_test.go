//go:build integration

package machine_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// composeService is a service of a Compose project.
type composeService struct {
	name    string
	restart string
	needs   []string
}

// shop returns a project of five services.
func shop() []composeService {
	return []composeService{
		{"db", "unless-stopped", []string{}},
		{"cache", "always", []string{}},
		{"api", "unless-stopped", []string{"db", "cache"}},
		{"web", "unless-stopped", []string{"api"}},
		{"proxy", "unless-stopped", []string{"web"}},
	}
}

// shopContainer returns Compose's name of a service's container.
func shopContainer(service string) string { return "shop-" + service + "-1" }

// graceSeconds is longer than any container takes that handles the signal.
const graceSeconds = "300"

// diaryVolumes returns the volumes with which a container can record its events.
func diaryVolumes() []string {
	return []string{job.Dir + ":" + job.SeenDir, "/usr/local/bin/guest:" + job.SeenProgram + ":ro"}
}

// diaryCommand returns the command of a container, which records its events under the name of pod.
func diaryCommand(pod string) []string {
	return []string{job.SeenProgram, "work", "-name", "default/" + pod + "/main"}
}

// dockerRun runs a container without AppArmor, whose programs are not installed.
func dockerRun(m *machine.Machine, name, pod, restart string, labels ...string) {
	dockerRunAs(m, name, restart, diaryCommand(pod), labels...)
}

// dockerRunAs is dockerRun with another command.
func dockerRunAs(m *machine.Machine, name, restart string, command []string, labels ...string) {
	args := []string{"docker run --detach --network none --security-opt apparmor=unconfined --stop-timeout", graceSeconds, "--name", name, "--restart", restart}
	for _, v := range diaryVolumes() {
		args = append(args, "--volume", v)
	}
	for _, l := range labels {
		args = append(args, "--label", l)
	}
	m.Run(strings.Join(append(append(args, job.Image), command...), " "))
}

// shopUp starts the shop, with Compose if Debian has a version that records dependencies.
func shopUp(m *machine.Machine) {
	if m.Options.Release == machine.Debian12 {
		for _, s := range shop() {
			const label = "com.docker.compose."
			needs := slices.Clone(s.needs)
			for i := range needs {
				needs[i] += ":service_started:false"
			}
			dockerRun(m, shopContainer(s.name), s.name, s.restart, label+"project=shop", label+"service="+s.name, label+"container-number=1",
				label+"oneoff=False", label+"depends_on="+strings.Join(needs, ","))
		}
		return
	}
	services := map[string]any{}
	for _, s := range shop() {
		services[s.name] = map[string]any{
			"image": job.Image, "pull_policy": "never", "network_mode": "none", "command": diaryCommand(s.name), "volumes": diaryVolumes(),
			"restart": s.restart, "stop_grace_period": graceSeconds + "s", "depends_on": s.needs,
		}
	}
	file, err := json.Marshal(map[string]any{"services": services})
	if err != nil {
		panic(err) // cannot fail: all of it is text
	}
	m.Write("/root/shop/compose.yaml", string(file))
	m.Run("docker compose --project-directory /root/shop up --detach")
}

// runningSince returns when the running containers were started, by name.
func runningSince(t *testing.T, m *machine.Machine) map[string]time.Time {
	t.Helper()
	since := map[string]time.Time{}
	out := m.Run("docker ps --quiet | xargs --no-run-if-empty docker inspect --format '{{.Name}} {{.State.StartedAt}}'")
	for line := range strings.Lines(out) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatalf("docker inspect prints %q: %v", line, err)
		}
		since[strings.TrimPrefix(name, "/")] = at
	}
	return since
}

// TestAComposeProjectComesBack reboots a Docker host as Debian installs it, with a project of five
// services, a container without a restart policy, and one that a person has stopped.
func TestAComposeProjectComesBack(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		// All other settings have their defaults, also runtimes and restartAfterBoot.
		o.Config = "shutdown: {gracePeriod: 6m, gracePeriodCriticalPods: 1m}\n"
		o.Files = machine.DockerFiles(o)
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now docker.socket docker.service && docker load --quiet --input " + job.ImageArchive)
		shopUp(m)
		dockerRun(m, "task", "task", "no")
		dockerRun(m, "away", "away", "unless-stopped")
		m.Eventually("all have written down that they run", func() bool {
			return strings.TrimSpace(m.Run(`cat `+job.Dir+`/*.events | grep -c '"`+string(job.Started)+`"' || true`)) == "7"
		})
		m.Run("docker stop away")
		m.Eventually("hostler lists all", func() bool {
			pods := m.Hostler("ps")
			return strings.Contains(pods, "5 Running") && strings.Contains(pods, "task")
		})
		before := m.BootID()

		m.GoesDown("systemctl reboot")

		closed := readBack(t, m, before)
		checkShopClosed(t, closed)
		checkShopBack(t, m)
		t.Logf("seen: %s: down in %v", strings.Join(strings.Fields(m.Run("docker version --format '{{.Server.Version}}' && docker info --format '{{.Driver}} {{.CgroupDriver}}'")), " "),
			closed.last.FinishedAt.Sub(closed.last.StartedAt).Round(10*time.Millisecond))
	})
}

// checkShopClosed checks the promise for the end of a boot: each service ends before the services
// that it needs.
func checkShopClosed(t *testing.T, c closed) {
	t.Helper()
	for _, s := range shop() {
		for _, need := range s.needs {
			if !c.work.GoneBefore(s.name, need) {
				t.Errorf("%s got SIGTERM before %s was gone, which needs it:\n%s", need, s.name, c.work)
			}
		}
		if !c.work.Ended(s.name) {
			t.Errorf("%s was cut off, want it to end in its time:\n%s", s.name, c.work)
		}
	}
	if !c.last.Graceful || c.pod("shop").Outcome != journal.Stopped || c.pod("task").Outcome != journal.Stopped {
		t.Errorf("LastShutdown() = %+v, want a graceful one that stopped shop and task", c.last)
	}
}

// checkShopBack checks the promise for the next boot: what would run without hostler runs, started
// once, after what it needs.
func checkShopBack(t *testing.T, m *machine.Machine) {
	t.Helper()
	var s api.Status
	m.Eventually("it is settled what is started again", func() bool {
		s = m.Status()
		return len(s.Shutdown.Restarts) > 0 && !slices.ContainsFunc(s.Shutdown.Restarts, func(r journal.Restart) bool { return r.Outcome == "" })
	})
	outcomes := map[string]journal.RestartOutcome{}
	for _, r := range s.Shutdown.Restarts {
		outcomes[r.Name] = r.Outcome
	}
	want := map[string]journal.RestartOutcome{"task": journal.LeftStopped}
	for _, s := range shop() {
		want[shopContainer(s.name)] = journal.Restarted
		if s.restart == "always" { // dockerd has started it
			want[shopContainer(s.name)] = journal.RunsAnyway
		}
	}
	if _, output := outcomes["away"]; output { // it ended so shortly before that hostler also sent it the stop signal
		want["away"] = journal.LeftStopped
	}
	if !maps.Equal(outcomes, want) {
		t.Fatalf("Status().Shutdown.Restarts = %+v, want the outcomes %v", s.Shutdown.Restarts, want)
	}

	since := runningSince(t, m)
	for _, s := range shop() {
		for _, need := range s.needs {
			if needed, needs := since[shopContainer(need)], since[shopContainer(s.name)]; !needed.Before(needs) {
				t.Errorf("%s was started at %v, and %s, which it needs, at %v", s.name, needs, need, needed)
			}
		}
	}
	if len(since) != len(shop()) {
		t.Errorf("after the boot %v run, want the shop, and neither task nor away", since)
	}
	var work machine.Work
	m.Eventually("all five have written down that they run", func() bool {
		work = m.Work().Boot(m.BootID())
		return !slices.ContainsFunc(shop(), func(s composeService) bool { return len(work.Pod(s.name)) == 0 })
	})
	if len(work) != len(shop()) {
		t.Errorf("after the boot there were %d lives, want one of each service:\n%s", len(work), work)
	}

	output := m.Hostler("ps", "--last-shutdown")
	_, again, _ := strings.Cut(output, "restarted: ")
	for _, s := range shop() {
		if strings.Contains(again, shopContainer(s.name)) != (s.restart != "always") {
			t.Errorf("hostler ps --last-shutdown has the wrong result for %s with the policy %s:\n%s", s.name, s.restart, output)
		}
	}
	t.Logf("hostler ps --last-shutdown prints\n%s", output)
}
