//go:build integration

package machine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/machine"
)

// ailment is a state of a machine, and hostler's reports about it.
type ailment struct {
	name  string
	enter string // command that causes the state

	reason    string // of the condition ShutdownProtected; empty without an agent
	protected bool
	check     string // a check of hostler doctor
	verdict   doctor.Status
	message   string // part of its message
	fix       string // part of its hint; it is run
	leave     string // command that is run instead: what the hint asks a person to do, or, if nothing needs a fix, what ends the state
}

const fakeKubelet = "systemd-run -q --unit=kubelet-like systemd-inhibit --what=shutdown --mode=delay --who=kubelet --why='Kubelet needs time' /usr/local/bin/kubelet infinity"

func ailments() []ailment {
	return []ailment{
		{
			name: "armed", enter: "true",
			reason: status.ReasonArmed, protected: true, check: "lock", verdict: doctor.OK, message: "hostler holds the shutdown lock", leave: "true",
		},
		{
			name: "logind stopped", enter: "systemctl stop systemd-logind",
			reason: status.ReasonNoLogind, check: "logind", verdict: doctor.Fail, message: "systemd-logind", fix: "systemctl restart systemd-logind",
		},
		{
			name: "logind masked", enter: "systemctl mask --now systemd-logind.service",
			reason: status.ReasonNoLogind, check: "logind", verdict: doctor.Fail, message: "is masked", fix: "systemctl unmask systemd-logind.service && systemctl restart systemd-logind",
		},
		{
			name: "bus gone", enter: "systemctl stop dbus.socket dbus.service",
			reason: status.ReasonNoBus, check: "dbus", verdict: doctor.Fail, message: "bus", fix: "systemctl start dbus.socket dbus.service && systemctl restart systemd-logind",
		},
		{
			name: "overridden delay", enter: "mkdir -p /etc/systemd/logind.conf.d && printf '[Login]\\nInhibitDelayMaxSec=7\\n' >/etc/systemd/logind.conf.d/zzz.conf && systemctl kill -s HUP systemd-logind",
			reason: status.ReasonDelayTooShort, check: "delay", verdict: doctor.Fail, message: "logind grants 7s",
			fix:   "/etc/systemd/logind.conf.d/zzz.conf sets InhibitDelayMaxSec= to 7s",
			leave: "sed -i /InhibitDelayMaxSec/d /etc/systemd/logind.conf.d/zzz.conf && systemctl restart systemd-logind",
		},
		{
			name: "another owner", enter: "cp /usr/bin/sleep /usr/local/bin/kubelet && " + fakeKubelet,
			reason: status.ReasonDelegated, protected: true, check: "kubelet", verdict: doctor.OK, message: "kubelet", leave: "systemctl stop kubelet-like",
		},
		{
			name: "rebooted by cron", enter: "mkdir -p /etc/cron.d && echo '@weekly root systemctl reboot' >/etc/cron.d/weekly",
			reason: status.ReasonArmed, protected: true, check: "other-reboots", verdict: doctor.OK, message: "this host is rebooted by a command in /etc/cron.d/weekly", leave: "rm /etc/cron.d/weekly",
		},
		{
			name: "draining", enter: "systemctl reboot",
			reason: status.ReasonShuttingDown, protected: true, check: "protection", verdict: doctor.OK, message: "shutdown", leave: "systemctl restart systemd-logind",
		},
		{
			name: "cancelled", enter: "true",
			reason: status.ReasonArmed, protected: true, check: "lock", verdict: doctor.OK, message: "hostler holds the shutdown lock", leave: "true",
		},
		{
			name: "agent not running", enter: "systemctl stop hostler",
			check: "agent", verdict: doctor.Fail, message: "hostler.service is inactive, so that a shutdown would not wait for the pods: no agent answers", fix: "systemctl start hostler",
		},
		{
			name: "agent not running, and checks that need it", enter: "systemctl stop hostler",
			check: "protection", verdict: doctor.Unknown, message: "not checked: the agent is not running", fix: "see check agent", leave: "systemctl start hostler",
		},
		{
			name: "agent masked", enter: "systemctl mask --now hostler.service",
			check: "agent", verdict: doctor.Fail, message: "hostler.service is masked", fix: "systemctl unmask hostler.service && systemctl enable --now hostler",
		},
		{
			name: "no agent, and a file that its unit names", enter: "mkdir -p /etc/systemd/system/hostler.service.d && echo 'nme: {}' >/srv/other.yaml && " +
				"printf '[Service]\nEnvironment=HOSTLER_CONFIG=/srv/other.yaml\n' >/etc/systemd/system/hostler.service.d/zz.conf && systemctl daemon-reload && systemctl stop hostler",
			check: "configuration", verdict: doctor.Fail, message: "/srv/other.yaml:1: nme: unknown field", fix: "`hostler config check --config /srv/other.yaml`",
			leave: "hostler config check --config /srv/other.yaml 2>&1 | grep -q '/srv/other.yaml:1: nme: unknown field' && " +
				"rm /etc/systemd/system/hostler.service.d/zz.conf && systemctl daemon-reload && systemctl start hostler",
		},
		{
			name: "no watchdog", enter: "mkdir -p /etc/systemd/system/hostler.service.d && printf '[Service]\nWatchdogSec=0\n' >/etc/systemd/system/hostler.service.d/zz.conf && systemctl daemon-reload && systemctl restart hostler",
			reason: status.ReasonArmed, protected: true, check: "watchdog", verdict: doctor.Warn, message: "hostler.service has no watchdog",
			fix:   "set WatchdogSec=60 under [Service] in /etc/systemd/system/hostler.service.d/zz.conf, then systemctl daemon-reload && systemctl restart hostler",
			leave: "sed -i s/WatchdogSec=0/WatchdogSec=60/ /etc/systemd/system/hostler.service.d/zz.conf && systemctl daemon-reload && systemctl restart hostler",
		},
		{
			name: "scope drop-in missing", enter: "mv /usr/lib/systemd/system/cri-containerd-.scope.d/10-hostler.conf /root && systemctl daemon-reload",
			reason: status.ReasonArmed, protected: true, check: "scopes", verdict: doctor.Warn, message: "the scopes of containerd are not ordered",
			fix: `write "[Unit]" and "Before=hostler.service" into /etc/systemd/system/cri-containerd-.scope.d/10-hostler.conf; then systemctl daemon-reload`,
			leave: "mkdir /etc/systemd/system/cri-containerd-.scope.d && printf '[Unit]\\nBefore=hostler.service\\n' >/etc/systemd/system/cri-containerd-.scope.d/10-hostler.conf && " +
				"systemctl daemon-reload",
		},
		{
			name: "stale unit", enter: "echo '# touched' >>/usr/lib/systemd/system/hostler.service",
			reason: status.ReasonArmed, protected: true, check: "unit", verdict: doctor.Warn, message: "changed on disk", fix: "systemctl daemon-reload && systemctl restart hostler",
		},
	}
}

// TestTheTruthAboutProtection checks in each state what hostler reports about the protection of
// pods, and applies its fix.
func TestTheTruthAboutProtection(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		m.Deploy(machine.Pod{Name: "web", Grace: regularPeriod, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}})
		for _, a := range ailments() {
			m.Run("systemctl reset-failed; " + a.enter)
			expectFixable(t, m, a)
		}
		for range 5 { // a person does not wait, either
			out := ""
			m.Eventually("hostler starts before it stops to wait for its first checks, and all answer doctor in time", func() bool {
				out = m.Run("timeout 5 systemctl restart hostler || test $? != 124 || exit 0; hostler shutdown plan; hostler doctor || true")
				return out != "" && inTime(flat(out))
			})
			if !strings.HasPrefix(out, "a shutdown waits at most ") || !strings.Contains(out, "\npods are protected at a shutdown") || strings.Contains(out, "no runtime checked yet") {
				t.Errorf("hostler right after a restart:\n%s", out)
			}
		}
	})
}

// expectFixable checks that hostler reports a state, applies the fix, and expects a healthy
// machine.
func expectFixable(t *testing.T, m *machine.Machine, a ailment) {
	t.Helper()
	expectAilment(t, m, a)
	fix := a.leave
	if fix == "" {
		fix = a.fix
	}
	m.Run("systemctl reset-failed; " + fix)
	m.AwaitArmed()
	healthy := ailment{name: "after `" + fix + "`", reason: status.ReasonArmed, protected: true, check: a.check, verdict: doctor.OK}
	if a.check == "kubelet" || a.check == "other-reboots" { // it does not apply any more
		healthy.check = "lock"
	}
	expectAilment(t, m, healthy)
}

// expectAilment waits until the condition reports the state, and checks that the metric and hostler
// doctor agree.
func expectAilment(t *testing.T, m *machine.Machine, a ailment) {
	t.Helper()
	if a.reason != "" {
		want := corev1.ConditionFalse
		if a.protected {
			want = corev1.ConditionTrue
		}
		m.Eventually(a.name+": ShutdownProtected is "+string(want)+" with "+a.reason, func() bool {
			s, err := m.TryStatus()
			c := protection(s)
			return err == nil && c.Status == want && c.Reason == a.reason
		})
		expectMetric(t, m, a.name, a.protected)
	}
	r, code := diagnosis(t, m)
	wantCode := 0
	if r.Failed() {
		wantCode = 1
	}
	if r.Protected != a.protected || code != wantCode {
		t.Errorf("%s: hostler doctor = code %d, protected %t, want %d, %t: %+v", a.name, code, r.Protected, wantCode, a.protected, r)
	}
	i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == a.check })
	if i < 0 || r.Checks[i].Status != a.verdict || !strings.Contains(r.Checks[i].Message, a.message) || !strings.Contains(r.Checks[i].Hint, a.fix) {
		t.Errorf("%s: hostler doctor = %+v, want check %s to be %s, with %q and the fix %q", a.name, r.Checks, a.check, a.verdict, a.message, a.fix)
	}
}

// expectMetric checks the metric for the protection of pods.
func expectMetric(t *testing.T, m *machine.Machine, when string, protected bool) {
	t.Helper()
	metric := "hostler_shutdown_protected 0"
	if protected {
		metric = "hostler_shutdown_protected 1"
	}
	if out := m.Run("busybox wget -q -O - http://127.0.0.1:9754/metrics"); !strings.Contains(out, "\n"+metric+"\n") {
		t.Errorf("%s: /metrics lacks %q:\n%s", when, metric, grep(out, "hostler_shutdown"))
	}
}

func protection(s api.Status) corev1.NodeCondition {
	if s.Node == nil {
		return corev1.NodeCondition{}
	}
	i := slices.IndexFunc(s.Node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == status.ShutdownProtected })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return s.Node.Status.Conditions[i]
}

// diagnosis returns the result of hostler doctor and its exit code. If a program has not answered
// in time, which may happen on a busy machine, it runs doctor again.
func diagnosis(t *testing.T, m *machine.Machine) (r doctor.Report, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), machine.Patience)
	defer cancel()
	m.Eventually("all answer hostler doctor in time", func() bool {
		r = doctor.Report{}
		out, err := m.Try(ctx, "hostler doctor -o json")
		if err == nil {
			err = json.Unmarshal([]byte(out.Stdout), &r)
		}
		if err != nil {
			t.Fatalf("hostler doctor = %v\n%s%s", err, out.Stdout, out.Stderr)
		}
		code = out.Code
		return !slices.ContainsFunc(r.Checks, func(c doctor.Check) bool {
			return !inTime(c.Message)
		})
	})
	return r, code
}

// grep returns the lines with a part.
func grep(text, part string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
