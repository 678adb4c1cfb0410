//go:build integration

package machine_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/page"
)

// etcdctlHere makes etcdctl use the plain listener of the machine's etcd, and wait longer than it does by itself.
const etcdctlHere = "export ETCDCTL_ENDPOINTS=http://127.0.0.1:12379 ETCDCTL_COMMAND_TIMEOUT=5m ETCDCTL_DIAL_TIMEOUT=5m; "

// certify writes the certificates of an etcd in the machine, and of its server. Only root can read
// them.
func certify(t *testing.T, m *machine.Machine) {
	t.Helper()
	authority, own, err := lab.NewAuthority("etcd")
	if err != nil {
		t.Fatal(err)
	}
	m.Run("mkdir -p -m 0700 /etc/hostler/etcd")
	m.Write("/etc/hostler/etcd/ca.crt", string(own.Certificate))
	for name, use := range map[string]x509.ExtKeyUsage{"etcd": x509.ExtKeyUsageServerAuth, "server": x509.ExtKeyUsageClientAuth} {
		pair, err := authority.Sign(lab.Leaf(name, use, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		m.Write("/etc/hostler/etcd/"+name+".crt", string(pair.Certificate))
		m.Write("/etc/hostler/etcd/"+name+".key", string(pair.Key))
	}
	m.Run("chmod 600 /etc/hostler/etcd/*")
}

// TestTheServerIsAServiceWithoutRights runs hostler-server.service with an agent and an etcd.
func TestTheServerIsAServiceWithoutRights(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		etcd, err := kube.Etcd.Path(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		etcdctl, err := kube.Etcdctl.Path(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := machine.Boot(t, o)
		m.Copy(etcd, "/usr/local/bin/etcd")
		m.Copy(etcdctl, "/usr/local/bin/etcdctl")
		m.Copy("../../packaging/hostler-server.service", "/usr/lib/systemd/system/hostler-server.service")
		m.Write("/etc/systemd/system/etcd.service", "[Service]\nType=notify\nExecStart=/usr/local/bin/etcd --data-dir /var/lib/etcd "+
			"--listen-client-urls https://127.0.0.1:2379,http://127.0.0.1:12379 --advertise-client-urls https://127.0.0.1:2379 "+
			"--client-cert-auth --trusted-ca-file /etc/hostler/etcd/ca.crt --cert-file /etc/hostler/etcd/etcd.crt --key-file /etc/hostler/etcd/etcd.key\n")
		certify(t, m)
		m.Write("/etc/hostler/conf.d/etcd.yaml", "controlPlane: {type: etcd, etcd: {endpoints: [\"http://127.0.0.1:12379\"]}}\n")
		const manual = "../../docs/howto/server.md"
		m.Write("/etc/systemd/system/hostler-server.service.d/override.conf", page.Blocks(t, manual, "Steps", "ini")[0])
		config := strings.ReplaceAll(page.Blocks(t, manual, "Steps", "yaml")[0], "etcd-1.example", "127.0.0.1")
		m.Write("/etc/hostler/server.yaml", config)
		m.Run("hostler config check --server; systemctl daemon-reload; systemctl start etcd; systemctl restart hostler; systemctl start hostler-server")
		status := func() (s answer.Status) {
			t.Helper()
			if err := json.Unmarshal([]byte(m.Run("hostler fleet status -o json")), &s); err != nil {
				t.Fatal(err)
			}
			return s
		}
		leads := func() bool {
			s := status()
			return s.Controllers[0].State == answer.Leading && s.Nodes == 1 && s.NotReady == 0
		}
		m.Eventually("the server leads, and the host is Ready", leads)
		doctor := func() (found string) {
			t.Helper()
			var r doctor.Report
			if err := json.Unmarshal([]byte(doctorSays(m, "-o json")), &r); err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Checks {
				if strings.HasPrefix(c.Name, "server") {
					found += fmt.Sprintf("%s %s: %s\n", c.Status, c.Name, c.Message)
				}
			}
			return found
		}
		m.Run("systemctl enable hostler-server")
		for _, want := range []string{"ok server: the server answers, version ", "ok server-store: ", "ok server-controllers: node-lifecycle: this server leads", "ok server-objects"} {
			m.Eventually("hostler doctor finds "+want, func() bool { return strings.Contains(doctor(), want) }) // once the Nodes are read
		}

		commands := strings.Split(strings.ReplaceAll(page.Blocks(t, "../../docs/reference/etcd.md", "Taints", "sh")[0], "rack1-node1", "machine"), "\n")
		taints := func() string {
			return m.Run(etcdctlHere + "etcdctl get --print-value-only /hostler/nodes/machine | jq -c '[.spec.taints[]?.key]'")
		}
		for i, want := range []string{`["maintenance"]`, "[]"} {
			if m.Run(etcdctlHere + commands[i]); strings.TrimSpace(taints()) != want {
				t.Errorf("taints after %s = %s, want %s", commands[i], taints(), want)
			}
		}

		pid := func() string { return strings.TrimSpace(m.Run("systemctl show -P MainPID hostler-server")) }
		first := pid()
		limits := m.Run("grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/" + first + "/status")
		for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"} {
			if !strings.Contains(limits, want) {
				t.Errorf("the server has the limits\n%swant %s", limits, want)
			}
		}
		if user := strings.TrimSpace(m.Run("stat -c %u /proc/" + first)); user == "0" {
			t.Error("the server runs as root")
		}
		exposure := strings.Fields(m.Run("systemd-analyze security --no-pager hostler-server | sed -n 's/.*exposure level for hostler-server.service: //p'"))
		if level, err := strconv.ParseFloat(exposure[0], 64); err != nil || level > 1.5 {
			t.Errorf("exposure level = %v, %v, want at most 1.5", exposure, err)
		}
		m.Run("runuser -u nobody -g hostler -- hostler fleet plan")
		if code := strings.TrimSpace(m.Run("runuser -u nobody -- hostler fleet plan >/dev/null 2>&1; echo $?")); code != "3" {
			t.Errorf("hostler fleet plan of a user outside of group hostler exits with %s, want 3", code)
		}
		m.Run("runuser -u nobody -g hostler -- hostler fleet get nodes/$(hostname); runuser -u nobody -g hostler -- hostler fleet delete nodes/$(hostname) --dry-run")
		if refused := m.Run("runuser -u nobody -g hostler -- hostler fleet delete nodes/$(hostname) 2>&1; true"); !strings.Contains(refused, "only root may do this") {
			t.Errorf("hostler fleet delete of a user in group hostler prints %q, want that it is refused", refused)
		}

		m.Write("/etc/hostler/server.yaml", config+"nodeLifecycle: {evictionRate: 0.5}\n")
		m.Run("systemctl reload hostler-server")
		m.Eventually("the reload has taken the rate over", func() bool { z := status().Zones; return len(z) == 1 && z[0].Rate == 0.5 })
		m.Write("/etc/hostler/server.yaml", config+"nodeLifecycle: {evictionRate: fast}\n")
		if code := strings.TrimSpace(m.Run("systemctl reload hostler-server; echo $?")); code == "0" {
			t.Error("systemctl reload of an invalid file exits with 0")
		}
		m.Eventually("the log says why a reload is rejected", func() bool {
			return strings.Contains(m.Journal(0, "-u hostler-server"), "evictionRate: \"fast\" is not a number")
		})
		m.Write("/etc/hostler/server.yaml", config+"controllers: [\"*\", -eviction]\n")
		if code := strings.TrimSpace(m.Run("systemctl reload hostler-server; echo $?")); code == "0" {
			t.Error("systemctl reload of a key that needs a restart exits with 0")
		}
		m.Eventually("hostler doctor warns of the files of the server", func() bool {
			return strings.Contains(doctor(), "warn server: the files of the server differ from its effective configuration: controllers")
		})
		if z := status().Zones; len(z) != 1 || z[0].Rate != 0.5 {
			t.Errorf("zones after a rejected reload = %+v, want the rate as before", z)
		}
		m.Write("/etc/hostler/server.yaml", config)

		m.Run("kill -KILL " + first)
		m.Eventually("the server is restarted", func() bool { p := pid(); return p != "0" && p != first })
		leadsAgain := func() bool { // it may not listen yet
			return strings.TrimSpace(m.Run("hostler fleet status >/dev/null 2>&1; echo $?")) == "0" && leads()
		}
		m.Eventually("it leads again", leadsAgain)
		if kept := strings.TrimSpace(m.Run("systemctl show -P NFileDescriptorStore hostler-server")); kept != "1" {
			t.Errorf("systemd keeps %s descriptors of the server, want that of the silence of hosts", kept)
		}
		m.Run("systemctl stop hostler-server")
		if got, want := doctor(), "fail server: hostler-server.service is inactive"; !strings.Contains(got, want) {
			t.Errorf("hostler doctor finds\n%swant %q", got, want)
		}
		m.Run("systemctl stop hostler")
		if got, want := doctor(), "fail server: hostler-server.service is inactive"; !strings.Contains(got, want) {
			t.Errorf("hostler doctor without an agent finds\n%swant %q", got, want)
		}
		m.Run("systemctl start hostler")
		if result := strings.TrimSpace(m.Run("systemctl show -P Result hostler-server")); result != "success" {
			t.Errorf("the service has ended with %s, want success", result)
		}
		m.Run("systemctl start hostler-server")
		m.Eventually("it leads at once: the one before gave its leadership up", leads)

		m.Write("/run/systemd/system/hostler-server.service.d/watchdog.conf", "[Service]\nWatchdogSec=15\n")
		m.Run("systemctl daemon-reload; systemctl restart hostler-server")
		m.Eventually("it leads after a restart", leadsAgain)
		hung := stopped(m, "hostler-server")
		m.Eventually("the watchdog has replaced a server that hangs", func() bool { p := pid(); return p != "0" && p != hung })
		if log := m.Journal(0, "-u hostler-server"); !strings.Contains(log, "Watchdog timeout") {
			t.Errorf("the journal does not name the watchdog:\n%s", log)
		}
		m.Eventually("the new one leads", leadsAgain)
	})
}
