package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
)

// refused is an agent whose files have changes that it cannot apply.
func refused() *backend {
	return &backend{config: api.Config{
		YAML:          "shutdown:\n    gracePeriod: 30s\n",
		Configuration: doctor.Configuration{Differs: []string{"shutdown.gracePeriod"}, Restart: true},
	}}
}

func TestConfigShowPrintsWhatTheAgentRunsAndNamesWhatTheFilesSayOtherwise(t *testing.T) {
	b := refused()
	socket := serve(t, b)
	got := hostler(socket, "config", "show")
	if got.code != 0 || got.stdout != b.config.YAML {
		t.Errorf("hostler config show = %+v, want what the agent runs", got)
	}
	if !strings.Contains(got.stderr, "shutdown.gracePeriod") || !strings.Contains(got.stderr, "hint: systemctl restart hostler") {
		t.Errorf("hostler config show warns %q, want the key and the restart", got.stderr)
	}
	got = hostler(socket, "config", "show", "-o", "json")
	var answer struct {
		Shutdown struct{ GracePeriod string }
	}
	if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil || answer.Shutdown.GracePeriod != "30s" {
		t.Errorf("hostler config show -o json = %+v, want the same as JSON", got)
	}
	if got := hostler(socket, "config", "show", "-o", "wide"); got.code != 2 || !strings.Contains(got.stderr, "hint: use -o yaml or json") {
		t.Errorf("hostler config show -o wide = %+v, want 2 with the formats", got)
	}
}

func TestConfigShowWithoutAnAgentSaysThatItShowsTheFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hostler.yaml")
	if err := os.WriteFile(file, []byte("node: {maxPods: 11}"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := run(nil, map[string]string{"HOSTLER_SOCKET": "/nowhere", "HOSTLER_CONFIG": file}, "config", "show")
	if got.code != 0 || !strings.Contains(got.stdout, "maxPods: 11\n") || !strings.Contains(got.stderr, "no agent answers at /nowhere") || !strings.Contains(got.stderr, "showing the configuration in the files") {
		t.Errorf("hostler config show = %+v, want the files, and that it is them", got)
	}
	if got := hostler(serve(t, refused()), "config", "show", "--config", file); !strings.Contains(got.stdout, "maxPods: 11\n") || got.stderr != "" {
		t.Errorf("hostler config show --config = %+v, want the file, and no agent asked", got)
	}
}

func TestReloadPrintsWhatChangedOrWhyItWasRefused(t *testing.T) {
	got := hostler(serve(t, refused()), "reload")
	if want := "now effective: shutdown.gracePeriod\n"; got.code != 0 || got.stdout != want {
		t.Errorf("hostler reload = %+v, want %q", got, want)
	}
	if got := hostler(serve(t, &backend{}), "reload"); got.code != 0 || got.stdout != "no changes\n" {
		t.Errorf("hostler reload = %+v, want no changes", got)
	}
	long := &backend{}
	long.config.Differs = []string{"pressure.psi.cpu.kind", "pressure.psi.cpu.window", "pressure.psi.cpu.threshold", "pressure.psi.io.kind"}
	want := "now effective: pressure.psi.cpu.kind, pressure.psi.cpu.window,\n  pressure.psi.cpu.threshold, pressure.psi.io.kind\n"
	if got := hostler(serve(t, long), "reload"); got.stdout != want {
		t.Errorf("hostler reload = %q, want %q", got.stdout, want)
	}
	refusal := &api.Error{Message: "reload rejected, keeping the old configuration: node.name cannot change while the agent runs"}
	if got := hostler(serve(t, &backend{err: refusal}), "reload", "--signal", "1"); got.code != 1 || got.stderr != "hostler: "+refusal.Message+"\n" {
		t.Errorf("hostler reload = %+v, want 1 and why", got)
	}
}

// The unit has the agent's process ID, and its socket may be elsewhere.
func TestReloadSignalsTheProcessThatTheUnitNames(t *testing.T) {
	if got := hostler("/nowhere", "reload"); got.code != 3 {
		t.Errorf("hostler reload = %+v, want 3", got)
	}
	hangups := make(chan os.Signal, 1) // a child inherits ignored signals, as under nohup
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(sleeper.Process.Pid)
	got := hostler("/nowhere", "reload", "--signal", pid)
	if got.code != 0 || !strings.Contains(got.stderr, "sent SIGHUP to process "+pid+" instead") {
		_ = sleeper.Process.Kill()
		t.Errorf("hostler reload --signal = %+v, want 0 and what was done", got)
	}
	_ = sleeper.Wait()
	if by := sleeper.ProcessState.Sys().(syscall.WaitStatus).Signal(); by != syscall.SIGHUP {
		t.Errorf("the process was ended by %v, want SIGHUP", by)
	}
	if got := hostler("/nowhere", "reload", "--signal", pid); got.code != 3 || !strings.Contains(got.stderr, "signal process "+pid) {
		t.Errorf("hostler reload --signal of a process that has ended = %+v, want 3", got)
	}
}

func TestStatusSaysThatTheFilesAreNotInForce(t *testing.T) {
	s := healthy()
	s.Configuration = refused().config.Configuration
	got := hostler(serve(t, &backend{status: s}), "status")
	flat := strings.Join(strings.Fields(got.stdout), " ")
	if want := "configuration: the files differ from the effective configuration: shutdown.gracePeriod next: systemctl restart hostler, which stops no container"; !strings.Contains(flat, want) {
		t.Errorf("hostler status = %s, want %s", got.stdout, want)
	}
}

// These commands must work even if the configuration is so faulty that the agent cannot start.
func TestDoctorAndPSWorkBesideFaultyFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hostler.yaml")
	if err := os.WriteFile(file, []byte("shutdown: {gracePeriode: 30s}"), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"HOSTLER_SOCKET": "/nowhere", "HOSTLER_CONFIG": file}
	got := run(nil, environment, "doctor", "-o", "json")
	if os.Geteuid() != 0 {
		if got.code != 3 {
			t.Errorf("hostler doctor = %+v, want 3 for who is not root", got)
		}
		return
	}
	var report doctor.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 1 {
		t.Fatalf("hostler doctor = %+v, want a report and 1", got)
	}
	found := false
	for _, c := range report.Checks {
		found = found || c.Name == "configuration" && c.Status == doctor.Fail && strings.Contains(c.Message, file+":1: shutdown.gracePeriode: unknown field")
	}
	if !found {
		t.Errorf("hostler doctor = %+v, want the fault as a failed check", report.Checks)
	}
	got = run(nil, environment, "ps", "--last-shutdown")
	if got.code != 1 || !strings.Contains(got.stderr, file+":1: shutdown.gracePeriode: unknown field") || !strings.Contains(got.stderr, "records in /var/lib/hostler") || got.stdout == "" {
		t.Errorf("hostler ps --last-shutdown = %+v, want the fault, an answer and 1", got)
	}
}

func TestConfigCheckNamesEachFileOfTheServer(t *testing.T) {
	dir := t.TempDir()
	file, dropIn := filepath.Join(dir, "server.yaml"), filepath.Join(dir, "server.d", "50-store.yaml")
	if err := os.Mkdir(filepath.Dir(dropIn), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{file: "log: {level: warn}\n", dropIn: "store: {type: etcd, etcd: {endpoints: [\"http://127.0.0.1:2379\"]}}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := run(nil, nil, "config", "check", "--server", file)
	if want := file + ": ok\n" + dropIn + ": ok\n"; got.code != 0 || got.stdout != want {
		t.Errorf("hostler config check --server = %+v, want %q", got, want)
	}
}
