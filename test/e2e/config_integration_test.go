//go:build integration

package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestABadConfigurationIsRefusedByFileLineAndFieldAndNothingIsStarted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want string // after the file's name
	}{
		"an unknown field":             {"imageGC:\n  highTreshold: 80\n", ":2: imageGC.highTreshold: "},
		"an unknown section":           {"imagesGC: {}\n", ":1: imagesGC: "},
		"a value of the wrong type":    {"lease:\n  renewInterval: 1s\n  duration: often\n", ":3: lease.duration: "},
		"a duration without unit":      {"shutdown:\n  gracePeriod: 30\n", ":2: shutdown.gracePeriod: "},
		"thresholds that cross":        {"imageGC:\n\n  highThresholdPercent: 70\n  lowThresholdPercent: 75\n", ":4: imageGC.lowThresholdPercent: "},
		"critical at the total":        {"shutdown: {gracePeriod: 10s, gracePeriodCriticalPods: 10s}\n", ":1: shutdown.gracePeriodCriticalPods: "},
		"both ways of saying graces":   {"shutdown:\n  gracePeriod: 30s\n  byPriority: [{priority: 0, gracePeriod: 5s}]\n", ":3: shutdown.byPriority: "},
		"a name that is no DNS name":   {"node: {name: Not_A_Name}\n", ":1: node.name: "},
		"metrics for all the world":    {"metrics:\n  listen: 0.0.0.0:9754\n", ":2: metrics.listen: "},
		"a file that is not even YAML": {"node: {name: x\n", ":"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			file, socket, state := filepath.Join(folder, "hostler.yaml"), filepath.Join(folder, "sock"), filepath.Join(folder, "state")
			check(t, os.WriteFile(file, []byte(test.text), 0o644))
			places := "api: {socket: " + socket + "}\nstate: {directory: " + state + "}\n"
			dropIns := filepath.Join(folder, "conf.d")
			check(t, os.Mkdir(dropIns, 0o755))
			check(t, os.WriteFile(filepath.Join(dropIns, "10-places.yaml"), []byte(places), 0o644))

			for _, args := range [][]string{{"config", "check", "--config", file}, {"config", "show", "--config", file}, {"agent", "--config", file}} {
				r := command(t, nil, args...)
				if r.code != 1 || r.out != "" || !strings.HasPrefix(r.err, file+test.want) {
					t.Errorf("hostler %s = %d, %q, %q, want 1 and %s", strings.Join(args, " "), r.code, r.out, r.err, file+test.want)
				}
			}
			for _, path := range []string{socket, state} {
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("Stat(%s) = %v, want that nothing was made", path, err)
				}
			}
		})
	}
}

func TestEveryFaultOfFileAndDropInsIsListed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, dropIn := filepath.Join(folder, "hostler.yaml"), filepath.Join(folder, "conf.d", "20-more.yaml")
	check(t, os.Mkdir(filepath.Dir(dropIn), 0o755))
	check(t, os.WriteFile(file, []byte("nod: {}\nlease:\n  duration: 3\n"), 0o644))
	check(t, os.WriteFile(dropIn, []byte("# the night shift's\nlog: {level: chatty, form: text}\n"), 0o644))

	r := command(t, []string{"HOSTLER_CONFIG=" + file}, "config", "check")
	if r.code != 1 {
		t.Errorf("exit code = %d, want 1", r.code)
	}
	mentions(t, "stderr", r.err, file+":1: nod: ", file+":3: lease.duration: ", dropIn+":2: log.form: ")
}

func TestTheEnvironmentNamesConfigurationAndSocket(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "node: {name: by-environment}")
	file := a.config
	a.env, a.config = []string{"HOSTLER_CONFIG=" + file}, ""
	a.start()
	if name := a.status().Node.Name; name != "by-environment" {
		t.Errorf("node is %q, want it named by the file of HOSTLER_CONFIG", name)
	}
	// --socket precedes the variable, which precedes the default path.
	r := command(t, []string{"HOSTLER_SOCKET=/nowhere"}, "status", "--socket", a.socket)
	if r.code != 0 || !strings.HasPrefix(r.out, "by-environment is ") {
		t.Errorf("hostler status --socket = %d, %q, %q", r.code, r.out, r.err)
	}
	r = command(t, []string{"HOSTLER_CONFIG=" + file + ".missing"}, "config", "check")
	if r.code != 1 {
		t.Errorf("config check with a file that is missing = %d, want 1", r.code)
	}
	mentions(t, "stderr", r.err, file+".missing", "no such file")
}

func TestTheDefaultConfigurationIsAConfiguration(t *testing.T) {
	t.Parallel()
	defaults := command(t, nil, "config", "default")
	file := filepath.Join(t.TempDir(), "hostler.yaml")
	check(t, os.WriteFile(file, []byte(defaults.out), 0o644))
	if r := command(t, nil, "config", "check", "--config", file); r.code != 0 || r.out != file+": ok\n" {
		t.Errorf("config check of the defaults = %d, %q, %q, want 0", r.code, r.out, r.err)
	}
	shown, plain := command(t, nil, "config", "show", "--config", file), command(t, nil, "config", "show")
	if shown.out != plain.out || plain.out == "" {
		t.Errorf("config show of the printed defaults and of no file differ:\n%s\n%s", shown.out, plain.out)
	}
}

func TestExitCodesAndHints(t *testing.T) {
	t.Parallel()
	nobody := []string{"HOSTLER_SOCKET=" + filepath.Join(t.TempDir(), "sock")}
	for name, test := range map[string]struct {
		args []string
		code int
		want string // part of the output
	}{
		"help is done":                      {[]string{"--help"}, 0, "Exit codes: 0 success, 1 failure, 2 wrong command line, 3 agent unreachable"},
		"the version is done":               {[]string{"version"}, 0, "hostler " + version},
		"a completion is done":              {[]string{"completion", "bash"}, 0, "hostler"},
		"an unknown command is wrong use":   {[]string{"sattus"}, 2, "hint: "},
		"an unknown subcommand is too":      {[]string{"gc", "paln"}, 2, "hint: "},
		"an unknown flag is":                {[]string{"status", "--colour"}, 2, "hint: "},
		"an unknown format is":              {[]string{"status", "-o", "xml"}, 2, "hint: use -o table, wide, json or yaml"},
		"a target that is no percentage is": {[]string{"gc", "run", "--target-percent", "0"}, 2, "0 is not from 1 to 100"},
		"status without an agent":           {[]string{"status"}, 3, "hint: run `hostler doctor` as root"},
		"ps without an agent":               {[]string{"ps"}, 3, "hint: run `hostler doctor` as root"},
		"images without an agent":           {[]string{"images"}, 3, "hint: run `hostler doctor` as root"},
		"gc plan without an agent":          {[]string{"gc", "plan"}, 3, "hint: run `hostler doctor` as root"},
		"gc run without an agent":           {[]string{"gc", "run"}, 3, "hint: run `hostler doctor` as root"},
		"shutdown plan without an agent":    {[]string{"shutdown", "plan"}, 3, "hint: run `hostler doctor` as root"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command(t, nobody, test.args...)
			if r.code != test.code {
				t.Errorf("exit code = %d, want %d", r.code, test.code)
			}
			mentions(t, "output", r.out+r.err, test.want)
		})
	}
}
