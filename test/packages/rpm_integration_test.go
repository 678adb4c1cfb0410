//go:build integration

package packages_test

import (
	"strings"
	"testing"
)

// rpms are functions for tests of rpm with two versions of the package. The later one has another
// hostler.yaml. rpm behaves the same on Debian as elsewhere; only the dependencies are unknown
// there.
const rpms = `
	rpm() { command rpm --nodeps "$@" 2>&1; }
	this=$(echo /packages/hostler-[0-9]*.x86_64.rpm) later=$(echo /later/*.rpm)
	version() { command rpm --query --queryformat '%{VERSION}\n' hostler; }
	asked() { grep '^systemctl .*hostler' || true; }
	mkdir -p /usr/share/licenses /usr/share/zsh/site-functions # another package's
`

func TestAnRpmComesAndGoes(t *testing.T) {
	really := steps(t, rpms+`
		everything() { find /etc /usr /var/lib /run -xdev \( -path '/var/lib/rpm*' -o -path '/etc/*-' -o -name .pwd.lock \) -prune -o -print | sort; }
		everything >/tmp/before
		step install; rpm --install $this >/dev/null; getent group hostler | cut -d: -f1; id -Gn hostler-exec; rpm --verify hostler
		rpm --erase hostler >/dev/null
		everything >/tmp/after
		step left; diff /tmp/before /tmp/after || true
	`)
	for part, want := range map[string]string{"install": "hostler\nhostler-exec\n", "left": ""} {
		if really[part] != want {
			t.Errorf("%s says\n%s\nwant\n%s", part, really[part], want)
		}
	}
	got := steps(t, running+rpms+`
		step install; rpm --install $this | asked; version
		mkdir /var/lib/hostler
		echo a state >/var/lib/hostler/agent.state
		step upgrade; rpm --upgrade $later | asked; version
		step older; rpm --upgrade $this | grep -o 'is already installed'; version
		step downgrade; rpm --upgrade --oldpackage $this | asked; version
		rm /usr/bin/hostler
		echo damaged >/usr/lib/sysusers.d/hostler.conf
		step reinstall; rpm --reinstall $this | asked; version; rpm --verify hostler
		step remove; rpm --erase hostler | asked; cat /var/lib/hostler/agent.state; getent group hostler | cut -d: -f1
		step again; rpm --install $this | asked; version
	`)
	const before, after = "0.1.0~dev.42+g0123456789ab\n", "0.1.0\n"
	const upgraded = "systemctl try-restart hostler.service\nsystemctl is-active --quiet hostler-server.service\n" // which restarts, too
	for part, want := range map[string]string{
		"install":   "systemctl --no-reload preset hostler.service\n" + before,
		"upgrade":   upgraded + after,
		"older":     "is already installed\n" + after,
		"downgrade": upgraded + before,
		"reinstall": upgraded + before,
		"remove":    "systemctl --no-reload disable --now hostler.service\na state\nhostler\n",
		"again":     "systemctl --no-reload preset hostler.service\n" + before,
	} {
		if got[part] != want {
			t.Errorf("at %s of an rpm is said\n%s\nwant\n%s", part, got[part], want)
		}
	}
}

// A person's text is kept in every direction. The package's new text is stored beside it.
func TestAnRpmKeepsWhatAPersonWrote(t *testing.T) {
	got := steps(t, rpms+`
		last() { tail -n 1 "hostler.yaml${1-}"; }
		files() { ls | tr '\n' ' '; echo; }
		rpm --install $this >/dev/null
		cd /etc/hostler
		step untouched; rpm --upgrade $later >/dev/null; last; files
		step back; rpm --upgrade --oldpackage $this >/dev/null; rpm --verify hostler; files
		echo '# mine' >>hostler.yaml
		echo 'log: {level: debug}' >conf.d/mine.yaml
		step reinstall; rpm --reinstall $this >/dev/null; last; files
		step upgrade; rpm --upgrade $later | grep -o 'created as .*'; last; last .rpmnew; files
		rm hostler.yaml.rpmnew
		step downgrade; rpm --upgrade --oldpackage $this | grep -o 'created as .*'; last; head -n -1 hostler.yaml | cmp - hostler.yaml.rpmnew; files
		rm hostler.yaml.rpmnew
		step remove; rpm --erase hostler | grep -o 'saved as .*'; last .rpmsave; files; cat conf.d/mine.yaml
		step again; rpm --install $this >/dev/null; rpm --verify hostler; last .rpmsave; files
	`)
	const folders = "conditions.d conf.d "
	for part, want := range map[string]string{
		"untouched": "# theirs\n" + folders + "hostler.yaml reboot.d \n",
		"back":      folders + "hostler.yaml reboot.d \n",
		"reinstall": "# mine\n" + folders + "hostler.yaml reboot.d \n",
		"upgrade":   "created as /etc/hostler/hostler.yaml.rpmnew\n# mine\n# theirs\n" + folders + "hostler.yaml hostler.yaml.rpmnew reboot.d \n",
		"downgrade": "created as /etc/hostler/hostler.yaml.rpmnew\n# mine\n" + folders + "hostler.yaml hostler.yaml.rpmnew reboot.d \n",
		"remove":    "saved as /etc/hostler/hostler.yaml.rpmsave\n# mine\nconf.d hostler.yaml.rpmsave \nlog: {level: debug}\n",
		"again":     "# mine\n" + folders + "hostler.yaml hostler.yaml.rpmsave reboot.d \n",
	} {
		if got[part] != want {
			t.Errorf("after %s of an rpm there is\n%s\nwant\n%s", part, got[part], want)
		}
	}
}

// As with the deb: the installed agent is not the running one.
func TestAConfigurationThatTheNewAgentOfAnRpmRefuses(t *testing.T) {
	got := steps(t, running+rpms+`
		mkdir -p /etc/hostler/conf.d
		echo 'imageGC: {highThreshold: 5}' >/etc/hostler/conf.d/old.yaml
		ends() { "$@" && echo "ended with 0"; version; }
		step install; ends rpm --install $this
		step upgrade; ends rpm --upgrade $later
		step downgrade; ends rpm --upgrade --oldpackage $this
		step reinstall; ends rpm --reinstall $this
		rm /etc/hostler/conf.d/old.yaml
		step mended; ends rpm --upgrade $later
	`)
	faults := []string{"/etc/hostler/conf.d/old.yaml:1: imageGC.highThreshold: ", "the agent was NOT restarted", "hint: ", "ended with 0"}
	for part, wants := range map[string][]string{
		"install":   {"ended with 0", "0.1.0~dev.42"}, // a person starts it
		"upgrade":   append([]string{"\n0.1.0\n"}, faults...),
		"downgrade": append([]string{"0.1.0~dev.42"}, faults...),
		"reinstall": append([]string{"0.1.0~dev.42"}, faults...),
		"mended":    {"systemctl try-restart hostler.service", "ended with 0", "\n0.1.0\n"},
	} {
		for _, want := range wants {
			if !strings.Contains(got[part], want) {
				t.Errorf("at %s of an rpm is said\n%s\nwant %q in it", part, got[part], want)
			}
		}
		if part != "mended" && (strings.Contains(got[part], "try-restart") || strings.Contains(got[part], "systemctl start")) {
			t.Errorf("at %s of an rpm systemd must start something:\n%s", part, got[part])
		}
	}
}
