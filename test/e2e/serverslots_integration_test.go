//go:build integration

package e2e_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	fleetanswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// locker is a server with FleetLock.
type locker struct {
	*server
	address string
}

// lockPassword is the password of lockers.
const lockPassword = "s3cret"

// startLocker starts a locker of a fleet, with a group of one slot.
func startLocker(t testing.TB, of engine, more string) locker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	address := l.Addr().String()
	check(t, l.Close())
	password := filepath.Join(t.TempDir(), "password")
	check(t, os.WriteFile(password, []byte(lockPassword+"\n"), 0o600))
	s := startServer(t, of.served(fmt.Sprintf("reboots: {listen: %q, passwordFile: %s, groups: {default: {slots: 1}, workers: {slots: 2, maxUnavailable: 100%%}}%s}\ncontrollers: [reboots]\n", address, password, more)))
	k := locker{s, address}
	eventually(t, "it answers FleetLock clients", func() bool { return k.curl("steady-state", "nobody", "default") == "200 released" })
	return k
}

// curl sends a request as in the protocol's documentation, and returns status and kind.
func (l locker) curl(path, id, group string) string {
	l.t.Helper()
	return l.curlAt("http://hostler:"+lockPassword+"@"+l.address, path, id, group) // as a base_url of Zincati
}

func (l locker) curlAt(base, path, id, group string, more ...string) string {
	l.t.Helper()
	body := filepath.Join(l.folder, "body.json")
	check(l.t, os.WriteFile(body, []byte(fmt.Sprintf("{\n  \"client_params\": {\n    \"group\": %q,\n    \"id\": %q\n  }\n}\n", group, id)), 0o644))
	args := append([]string{"-s", "-w", "\n%{http_code}", "-H", "fleet-lock-protocol: true", "-d", "@body.json"}, more...)
	cmd := exec.Command("curl", append(args, base+"/v1/"+path)...)
	cmd.Dir = l.folder
	out, err := cmd.Output()
	if err != nil {
		return err.Error()
	}
	text, code, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	var answer struct{ Kind, Value string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Value == "" {
		l.t.Errorf("%s = %q, want JSON with kind and value", path, out)
	}
	return strings.TrimSpace(code) + " " + answer.Kind
}

// holders returns the holders of a group, and how the last slot became free.
func (l locker) holders(group string) string {
	l.t.Helper()
	var a fleetanswer.Slots
	check(l.t, json.Unmarshal([]byte(l.prints("slots", "-o", "json")), &a))
	var ids []string
	for _, g := range a.Groups {
		if g.Name != group {
			continue
		}
		for _, h := range g.Holders {
			ids = append(ids, h.ID)
		}
		if len(g.Releases) > 0 {
			ids = append(ids, g.Releases[0].How+" "+g.Releases[0].ID)
		}
	}
	return strings.Join(ids, ", ")
}

// TestRebootSlots follows hosts that request slots from two servers: a server is killed, a Node is
// deleted, and a person releases a slot.
func TestRebootSlots(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (rebooters, func(name string)){
		"etcd": func(t *testing.T) (rebooters, func(string)) {
			f := newFleet(t, etcd.Options{})
			return f, func(name string) { f.ctl("del", "/hostler/nodes/"+name) }
		},
		"Kubernetes": func(t *testing.T) (rebooters, func(string)) {
			c := newCluster(t, kube.Options{})
			return c, func(name string) { c.kubectl("delete", "node", name) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet, remove := open(t)
			newNodes(t, fleet, map[string]string{corev1.LabelTopologyZone: "a"}, "n1", "n2")
			newNodes(t, fleet, map[string]string{corev1.LabelTopologyZone: "b"}, "n3")
			first, second := startLocker(t, fleet, ""), startLocker(t, fleet, "")
			steps := func(what string, steps ...[4]any) {
				t.Helper()
				for i, s := range steps {
					got := ""
					eventually(t, "the server gives slots again after its start", func() bool {
						got = s[0].(locker).curl(s[1].(string), s[2].(string), "default")
						// 5xx and not_confirmed: the store was late
						return !strings.Contains(got, "not_seen") && !strings.Contains(got, "not_confirmed") && !strings.HasPrefix(got, "5")
					})
					if got != s[3].(string) {
						t.Errorf("%s, step %d: %s of %s = %s, want %s", what, i+1, s[1], s[2], got, s[3])
					}
				}
			}
			const lock, unlock = "pre-reboot", "steady-state"
			steps("as documented",
				[4]any{first, lock, "n1", "200 granted"},
				[4]any{second, lock, "n1", "200 granted"},
				[4]any{second, lock, "n2", "409 failed_lock_semaphore_full"},
				[4]any{first, lock, "c988d2509fdf5cdcbed39037c56406fb", "409 failed_lock_semaphore_full"},
				[4]any{second, unlock, "n1", "200 released"},
				[4]any{first, lock, "c988d2509fdf5cdcbed39037c56406fb", "409 failed_lock_queued"},
				[4]any{first, lock, "n2", "200 granted"},
			)
			if got := first.curl(lock, "n1", "db"); got != "404 unknown_group" {
				t.Errorf("a group that is not configured = %s", got)
			}
			eventuallyMentions(t, "hostler fleet slots", func() string { return onOneLine(second.prints("slots")) }, "default 1 1 1 3 0", "n2 default", "fleetlock", "c988d2509fdf5cdcbed39037c56406fb")
			eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(second.prints("status")) }, "default 1 of 1 held: n2; 1 waiting")

			check(t, first.cmd.Process.Signal(syscall.SIGKILL))
			<-first.ended
			steps("one server was killed",
				[4]any{second, lock, "c988d2509fdf5cdcbed39037c56406fb", "409 failed_lock_semaphore_full"},
				[4]any{second, lock, "n2", "200 granted"},
			)
			remove("n2")
			eventually(t, "the slot of the deleted Node is free", func() bool { return second.holders("default") == "NodeDeleted n2" })
			steps("the Node was deleted", [4]any{second, lock, "c988d2509fdf5cdcbed39037c56406fb", "200 granted"})
			first.start()
			mentions(t, "hostler fleet slots release", first.prints("slots", "release", "c988d2509fdf5cdcbed39037c56406fb", "--reason", "it burns"), "recorded: it burns")
			for _, s := range []locker{first, second} {
				eventually(t, "the server shows the release", func() bool { return s.holders("default") == "Released c988d2509fdf5cdcbed39037c56406fb" })
			}
			eventuallyMentions(t, "hostler fleet slots -o wide", func() string { return onOneLine(second.prints("slots", "-o", "wide")) }, "Released", "it burns")
			steps("after the release", [4]any{second, lock, "n3", "200 granted"})
			r := command(t, nil, "fleet", "slots", "release", "n9", "--reason", "x", "--socket", second.socket())
			if r.code != 1 || !strings.Contains(r.err, "`hostler fleet slots` lists holders and requests") {
				t.Errorf("release of nobody = %d %s", r.code, r.err)
			}
		})
	}
}

// TestSlotsOverTLS has a server whose clients need a certificate.
func TestSlotsOverTLS(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	folder, err := os.MkdirTemp(lab.Dir, "fleetlock-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(folder)) })
	write := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		check(t, os.WriteFile(path, text, 0o600))
		return path
	}
	authority, ca, err := lab.NewAuthority("fleet")
	check(t, err)
	own, err := authority.Sign(lab.Leaf("server", x509.ExtKeyUsageServerAuth, time.Hour))
	check(t, err)
	client, err := authority.Sign(lab.Leaf("n1", x509.ExtKeyUsageClientAuth, time.Hour))
	check(t, err)
	caFile, cert, key := write("ca.crt", ca.Certificate), write("client.crt", client.Certificate), write("client.key", client.Key)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	address := l.Addr().String()
	check(t, l.Close())
	s := locker{startServer(t, f.served(fmt.Sprintf("reboots: {listen: %q, tls: {certificate: %s, key: %s, clientCA: %s}}\n", address, write("server.crt", own.Certificate), write("server.key", own.Key), caFile))), address}
	eventually(t, "it serves a client with a certificate", func() bool {
		return s.curlAt("https://"+address, "pre-reboot", "n1", "default", "--cacert", caFile, "--cert", cert, "--key", key) == "200 granted"
	})
	if got := s.curlAt("https://"+address, "pre-reboot", "n1", "default", "--cacert", caFile); !strings.HasPrefix(got, "exit status") {
		t.Errorf("without a certificate = %s, want no answer", got)
	}
}
