//go:build integration

package packages_test

import (
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/test/packages"
	"hostler.io/hostler/test/page"
)

// steps runs a script with the functions of a test: `deb` installs this machine's package, `step
// NAME` begins a part of the output.
func steps(t *testing.T, script string) map[string]string {
	t.Helper()
	out := inTree(t, `
		step() { echo "== $1"; }
		deb() { dpkg --install /packages/hostler_*_`+machine(t)+`.deb 2>&1; }
	`+script)
	parts := map[string]string{}
	for part := range strings.SplitSeq(out, "== ") {
		name, text, _ := strings.Cut(part, "\n")
		parts[name] = text
	}
	return parts
}

func TestAFirstInstallation(t *testing.T) {
	got := steps(t, `
		deb >/dev/null
		step version; hostler version
		step configuration; hostler config check
		step group; getent group hostler | cut -d: -f1
		step user; getent passwd hostler-exec | cut -d: -f1,6,7; id -Gn hostler-exec; [ "$(id -u hostler-exec)" -lt 1000 ] && echo system
		step enabled; readlink /etc/systemd/system/multi-user.target.wants/hostler.service
		step manual; man -w hostler hostler-gc-plan hostler.yaml; whatis --long hostler-drain hostler.yaml
		step verified; dpkg --verify hostler
		step unit; systemd-analyze verify hostler.service 2>&1
	`)
	for part, want := range map[string]string{
		"version":       "hostler 0.1.0-dev.42+g0123456789ab\n",
		"configuration": "/etc/hostler/hostler.yaml: ok\n",
		"group":         "hostler\n",
		"user":          "hostler-exec:/:/usr/sbin/nologin\nhostler-exec\nsystem\n",
		"enabled":       "/usr/lib/systemd/system/hostler.service\n",
		"verified":      "",
		"unit":          "",
		"manual": "/usr/share/man/man1/hostler.1.gz\n/usr/share/man/man1/hostler-gc-plan.1.gz\n/usr/share/man/man5/hostler.yaml.5.gz\n" +
			"hostler-drain (1)    - Cordon the Node and stop its pods without a shutdown; needs root\nhostler.yaml (5)     - configuration of hostler\n",
	} {
		if got[part] != want {
			t.Errorf("after an installation %s is\n%s\nwant\n%s", part, got[part], want)
		}
	}
}

// TestTheDocumentedWayToInstall follows README.md and docs/howto/upgrade.md, for this machine's
// architecture, in a folder with the packages.
func TestTheDocumentedWayToInstall(t *testing.T) {
	const root, sums = "../..", "sha256sum --ignore-missing -c SHA256SUMS"
	apt := func(name string) string {
		t.Helper()
		for _, c := range page.Commands(t, root, name) {
			if strings.HasPrefix(c.Line, "apt install ") {
				return strings.ReplaceAll(c.Line, "_amd64.", "_"+machine(t)+".") + " >/dev/null 2>&1; hostler version"
			}
		}
		t.Fatalf("%s has nothing that apt installs", name)
		return ""
	}
	if spans := page.Spans(t, root, "docs/howto/upgrade.md"); !slices.Contains(spans, sums) {
		t.Fatalf("docs/howto/upgrade.md names %q, want %q", spans, sums)
	}
	got := steps(t, `
		mkdir /root/dist && ln -s /packages /root/dist/packages
		step readme; cd /root; `+apt("README.md")+`; apt-get purge --yes hostler >/dev/null 2>&1
		step page; cd /packages; `+apt("docs/howto/upgrade.md")+`
		step sums; `+sums+` | cut -d: -f2 | sort | uniq -c
	`)
	for part, want := range map[string]string{
		"readme": "hostler " + packages.Version + "\n",
		"page":   "hostler " + packages.Version + "\n",
		"sums":   "8  OK\n",
	} {
		if strings.TrimLeft(got[part], " ") != want {
			t.Errorf("%s comes to\n%s\nwant\n%s", part, got[part], want)
		}
	}
}

func TestAnUpgradeKeepsWhatAPersonWrote(t *testing.T) {
	got := steps(t, `
		deb >/dev/null
		echo '# mine' >>/etc/hostler/hostler.yaml
		echo 'log: {level: debug}' >/etc/hostler/conf.d/mine.yaml
		systemctl --quiet disable hostler
		step upgrade; deb
		step kept; tail -n 1 /etc/hostler/hostler.yaml; cat /etc/hostler/conf.d/mine.yaml
		step enabled; ls /etc/systemd/system/multi-user.target.wants | grep hostler || true
		step removed; dpkg --remove hostler >/dev/null; cat /etc/hostler/conf.d/mine.yaml; tail -n 1 /etc/hostler/hostler.yaml
	`)
	mine := "# mine\nlog: {level: debug}\n"
	if got["kept"] != mine {
		t.Errorf("after an upgrade the configuration ends with\n%s\nwant\n%s\nthe upgrade said\n%s", got["kept"], mine, got["upgrade"])
	}
	if got["enabled"] != "" {
		t.Errorf("after an upgrade a disabled service is enabled: %s", got["enabled"])
	}
	if want := "log: {level: debug}\n# mine\n"; got["removed"] != want {
		t.Errorf("after a removal the configuration ends with\n%s\nwant\n%s", got["removed"], want)
	}
}

// If nobody answers dpkg's question, dpkg stops, and continues as in docs/howto/upgrade.md.
func TestAnUpgradeWhoseConfigurationBothSidesHaveChanged(t *testing.T) {
	got := steps(t, `
		deb >/dev/null
		echo '# mine' >>/etc/hostler/hostler.yaml
		dpkg-deb --raw-extract /packages/hostler_*_`+machine(t)+`.deb /tmp/next
		sed -i 's/^Version: .*/Version: 99/' /tmp/next/DEBIAN/control
		echo '# theirs' >>/tmp/next/etc/hostler/hostler.yaml
		dpkg-deb --build -Znone /tmp/next /tmp/next.deb >/dev/null
		last() { tail -n 1 "/etc/hostler/hostler.yaml${1-}"; }
		state() { dpkg-query --show --showformat='${Status} ${Version}\n' hostler; }
		step unanswered; dpkg --install /tmp/next.deb </dev/null >/dev/null 2>&1 || echo stops; last; state
		step answered; dpkg --force-confold --configure hostler >/dev/null 2>&1; last; last .dpkg-dist; state
	`)
	for part, want := range map[string]string{
		"unanswered": "stops\n# mine\ninstall ok unpacked 99\n",
		"answered":   "# mine\n# theirs\ninstall ok installed 99\n",
	} {
		if got[part] != want {
			t.Errorf("%s, an upgrade leaves\n%s\nwant\n%s", part, got[part], want)
		}
	}
}

func TestAPurgeLeavesNothing(t *testing.T) {
	got := steps(t, `
		everything() { find / -xdev \( -path /packages -o -path /proc -o -path /dev -o -path '/var/lib/dpkg/*' -o -path '/var/log/*' -o -path '/var/cache/*' -o -path '/tmp/*' -o -path '/etc/*-' -o -name .pwd.lock \) -prune -o -print | sort; cat /etc/group /etc/passwd; }
		mkdir /run/systemd
		everything >/tmp/before
		deb >/dev/null
		mkdir -p /run/systemd/logind.conf.d /var/lib/hostler/pki
		echo x >/run/systemd/logind.conf.d/zz-hostler.conf
		echo x >/var/lib/hostler/agent.state
		echo 'log: {level: debug}' >/etc/hostler/conf.d/mine.yaml
		dpkg --purge hostler 2>&1
		everything >/tmp/after
		step left; diff /tmp/before /tmp/after || true
	`)
	if got["left"] != "" {
		t.Errorf("a purge leaves (before, after):\n%s", got["left"])
	}
}

// running lets the maintainer scripts assume that systemd runs. They request jobs with two
// programs, which are replaced by programs that print the requests.
const running = `
	mkdir -p /run/systemd/system
	for program in deb-systemd-invoke systemctl; do
		rm "/usr/bin/$program"
		printf '#!/bin/sh\necho "%s $*"\n' "$program" >"/usr/bin/$program"
		chmod 755 "/usr/bin/$program"
	done
	asked() { grep '^deb-systemd-invoke' || true; }
`

func TestWhenTheAgentIsStartedAndStopped(t *testing.T) {
	got := steps(t, running+`
		step install; deb | asked
		step upgrade; deb | asked
		step remove; dpkg --remove hostler | asked
		step again; deb | asked
		step purge; dpkg --purge hostler | asked
	`)
	for part, want := range map[string]string{
		"install": "deb-systemd-invoke start hostler.service\n",
		"upgrade": "deb-systemd-invoke restart hostler.service\n",
		"remove":  "deb-systemd-invoke stop hostler.service\n",
		"again":   "deb-systemd-invoke restart hostler.service\n", // dpkg treats a removed package like one of an earlier version
		"purge":   "deb-systemd-invoke stop hostler.service\n",
	} {
		if got[part] != want {
			t.Errorf("at %s the calls of systemd are\n%s\nwant\n%s", part, got[part], want)
		}
	}
}

// An error in a configuration file must not end the agent of a host, nor make apt fail.
func TestAConfigurationThatTheNewAgentRefuses(t *testing.T) {
	got := steps(t, running+`
		mkdir -p /etc/hostler/conf.d
		echo 'imageGC: {highThreshold: 5}' >/etc/hostler/conf.d/old.yaml
		step install; deb; echo "ended with $?"
		step upgrade; deb; echo "ended with $?"
		rm /etc/hostler/conf.d/old.yaml
		step mended; deb
	`)
	for part, wants := range map[string][]string{
		"install": {"/etc/hostler/conf.d/old.yaml:1: imageGC.highThreshold: ", "the agent was NOT started", "hint: ", "ended with 0"},
		"upgrade": {"/etc/hostler/conf.d/old.yaml:1: imageGC.highThreshold: ", "the agent was NOT restarted", "hint: ", "ended with 0"},
		"mended":  {"deb-systemd-invoke restart hostler.service"},
	} {
		for _, want := range wants {
			if !strings.Contains(got[part], want) {
				t.Errorf("at %s is said\n%s\nwant %q in it", part, got[part], want)
			}
		}
		if part != "mended" && strings.Contains(got[part], "deb-systemd-invoke") {
			t.Errorf("at %s systemd is called:\n%s", part, got[part])
		}
	}
}

// The same for a server that runs. The systemctl of the test reports every unit as active.
func TestAConfigurationThatTheNewServerRefuses(t *testing.T) {
	for kind, install := range map[string]string{
		"deb": "dpkg --install /packages/hostler-server_*_all.deb 2>&1",
		"rpm": "rpm --reinstall /packages/hostler-server-*.noarch.rpm",
	} {
		t.Run(kind, func(t *testing.T) {
			first := map[string]string{"deb": "deb >/dev/null", "rpm": "rpm --install $this >/dev/null; rpm --install /packages/hostler-server-*.noarch.rpm >/dev/null"}[kind]
			got := steps(t, running+rpms+first+"\n"+`
				upgrade() { `+install+`; echo "ended with $?"; }
				upgrade >/dev/null
				echo 'store: {type: disk}' >/etc/hostler/server.yaml
				step refused; upgrade
				step agent; `+map[string]string{"deb": "deb", "rpm": "rpm --reinstall $this"}[kind]+`
				echo 'store: {type: etcd, etcd: {endpoints: ["http://127.0.0.1:2379"]}}' >/etc/hostler/server.yaml
				step corrected; upgrade
			`)
			wants := []string{`/etc/hostler/server.yaml:1: store.type: "disk" is none of etcd, kubernetes`, "the server was NOT restarted", "correct the files until this succeeds: hostler config check --server; only then: systemctl restart hostler-server"}
			for part, wants := range map[string][]string{
				"refused":   append([]string{"ended with 0"}, wants...),
				"agent":     wants,
				"corrected": {"ended with 0", "try-restart hostler-server.service"},
			} {
				for _, want := range wants {
					if !strings.Contains(got[part], want) {
						t.Errorf("at %s is said\n%s\nwant %q in it", part, got[part], want)
					}
				}
				if restarts := strings.Contains(got[part], "try-restart hostler-server.service"); restarts != (part == "corrected") {
					t.Errorf("at %s the server is restarted: %v\n%s", part, restarts, got[part])
				}
			}
		})
	}
}
