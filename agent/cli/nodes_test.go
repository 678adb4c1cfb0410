package cli_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
)

func TestFleetScreens(t *testing.T) {
	for name, b := range fleets() {
		t.Run(name, func(t *testing.T) {
			socket := serve(t, b)
			got := hostler(socket, "nodes")
			if got.code != 0 || got.stderr != "" {
				t.Fatalf("hostler nodes = code %d, %q, want 0 and no error", got.code, got.stderr)
			}
			golden(t, "nodes/"+name, got.stdout)
			golden(t, "nodes/"+name+"-wide", hostler(socket, "nodes", "-o", "wide").stdout)
			screens := got.stdout
			for _, h := range b.hosts {
				one := hostler(socket, "nodes", h.Node.Name)
				if one.code != 0 || one.stderr != "" {
					t.Errorf("hostler nodes %s = code %d, %q, want 0 and no error", h.Node.Name, one.code, one.stderr)
				}
				screens += one.stdout
			}
			for line := range strings.Lines(screens) {
				if n := onScreen(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("a line has %d columns, want at most 80: %s", n, line)
				}
				if line != strings.TrimRight(line, " \n")+"\n" {
					t.Errorf("a line ends in blanks: %q", line)
				}
			}
		})
	}
}

func TestMemberScreens(t *testing.T) {
	for name, c := range map[string]struct {
		fleet, node string
	}{
		"runtime-down": {"much-is-wrong", "rack1-node02"},
		"lost":         {"much-is-wrong", "rack1-node03"},
		"pressed":      {"much-is-wrong", "rack1-node04"},
		"ahead":        {"much-is-wrong", "rack2-node06"},
		"empty":        {"much-is-wrong", "rack2-node09"},
		"own":          {"much-is-wrong", "rack3-node07"},
		"ended":        {"ended", "rack3-node06"},
	} {
		got := hostler(serve(t, fleets()[c.fleet]), "nodes", c.node)
		golden(t, "nodes/one-"+name, got.stdout)
	}
}

// The worst hosts come first, and each host is listed once, with all its problems.
func TestAFleetIsListedTheWorstFirst(t *testing.T) {
	screen := hostler(serve(t, fleets()["much-is-wrong"]), "nodes").stdout
	at := 0
	for _, want := range []string{
		"9 nodes on kubernetes", "STATUS", "rack1-node03", "rack1-node02", "rack1-node04", "rack2-node09",
		"rack2-node06", "rack1-node01", "rack2-node05", "rack2-node08", "* rack3-node07",
	} {
		next := strings.Index(screen[at:], want)
		if next < 0 {
			t.Fatalf("the screen has no %q where it should be:\n%s", want, screen)
		}
		at += next
	}
}

func TestAFleetInJSONAndYAMLIsANodeList(t *testing.T) {
	for _, name := range []string{"much-is-wrong", "none", "alone"} {
		b := fleets()[name]
		socket := serve(t, b)
		for format, read := range map[string]func([]byte, any) error{
			"json": json.Unmarshal,
			"yaml": func(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) },
		} {
			text := hostler(socket, "nodes", "-o", format).stdout
			var list corev1.NodeList
			if err := read([]byte(text), &list); err != nil {
				t.Fatalf("hostler nodes -o %s of fleet %s is none: %v: %s", format, name, err, text)
			}
			var got, want []string
			for _, n := range list.Items {
				got = append(got, n.Kind+" "+n.Name+" "+string(n.UID))
			}
			for _, h := range b.hosts {
				want = append(want, "Node "+h.Node.Name+" "+string(h.Node.UID))
			}
			if list.Kind != "NodeList" || list.APIVersion != "v1" || list.Items == nil || !slices.Equal(got, want) {
				t.Errorf("hostler nodes -o %s of fleet %s = %s %s of %q, want a NodeList of %q", format, name, list.APIVersion, list.Kind, got, want)
			}
		}
	}
	socket := serve(t, fleets()["alone"])
	golden(t, "nodes/alone-json", hostler(socket, "nodes", "-o", "json").stdout)
	golden(t, "nodes/alone-yaml", hostler(socket, "nodes", "-o", "yaml").stdout)
	golden(t, "nodes/one-json", hostler(socket, "nodes", "rack3-node07", "-o", "json").stdout)
}

func TestAFleetThatCannotBeReportedPrintsNothing(t *testing.T) {
	why := &api.Error{Message: "list the nodes: forbidden", Hint: "ask somebody who may"}
	for _, format := range []string{"table", "json", "yaml"} {
		got := hostler(serve(t, &backend{err: why}), "nodes", "-o", format)
		if got.code != 1 || got.stdout != "" || got.stderr != "hostler: list the nodes: forbidden\nhint: ask somebody who may\n" {
			t.Errorf("hostler nodes -o %s = %+v, want code 1 and why", format, got)
		}
	}
}

func TestAFleetOfThousandsIsListed(t *testing.T) {
	const n = 3000
	socket := serve(t, many(n))
	screen := hostler(socket, "nodes").stdout
	if !strings.HasPrefix(screen, "3000 nodes on kubernetes at https://192.0.2.2:6443: 300 not ready, 2700 ok; * is\n") {
		t.Errorf("hostler nodes begins with %.200s, want how many there are", screen)
	}
	if got, want := strings.Count(screen, "\n"), n+300+4; got != want {
		t.Errorf("hostler nodes has %d lines, want %d: one a host, and one for what is wrong", got, want)
	}
	if first := strings.Index(screen, "node-00003"); first < 0 || first > strings.Index(screen, "node-00000") {
		t.Error("hostler nodes does not begin with what is worst")
	}
}

func TestAWatchedFleetFitsTheTerminal(t *testing.T) {
	signals := make(chan os.Signal, 1)
	b := many(500)
	b.entered = signals
	screen, code := onTerminalOf(t, 24, signals, map[string]string{"HOSTLER_SOCKET": serve(t, b), "NO_COLOR": "1"}, "nodes", "--watch")
	if code != 0 {
		t.Fatalf("hostler nodes --watch ended with %d, want 0", code)
	}
	if lines := strings.Count(screen, "\n"); screen != "" && (lines > 24 || !strings.Contains(screen, "more, none in a worse state\n")) { // empty if the signal came before the answer
		t.Errorf("hostler nodes --watch has %d lines on a terminal of 24, want how many are left out at the end:\n%s", lines, screen)
	}
}

func TestWhatIsWrongWithAFleetIsInColour(t *testing.T) {
	socket := serve(t, fleets()["much-is-wrong"])
	plain := hostler(socket, "nodes").stdout
	screen, _ := onTerminal(t, nil, map[string]string{"HOSTLER_SOCKET": socket}, "nodes")
	for _, want := range []string{"  NAME           STATUS ", "\x1b[31;1mexpired 13m ago\x1b[0m   192.0.2.13", "\x1b[31;1mNotReady 5m20s\x1b[0m   12s ", "* rack3-node07   Ready 3d "} {
		if !strings.Contains(screen, want) {
			t.Errorf("hostler nodes on a terminal = %q, want %q in it", screen, want)
		}
	}
	if bare := strings.NewReplacer("\x1b[31;1m", "", "\x1b[33;1m", "", "\x1b[0m", "").Replace(screen); bare != plain {
		t.Errorf("hostler nodes on a terminal, colours apart =\n%s\nwant as elsewhere:\n%s", bare, plain)
	}
}

func TestAWatchOfAFleetEndsWithASignal(t *testing.T) {
	for _, args := range [][]string{{"nodes"}, {"nodes", "rack3-node07"}} {
		signals := make(chan os.Signal, 1)
		b := fleets()["well"]
		b.entered = signals
		if got := hostlerUntil(signals, serve(t, b), append(args, "--watch")...); got.code != 0 || got.stderr != "" {
			t.Errorf("hostler %v --watch ended with %d, %q, want 0 and nothing", args, got.code, got.stderr)
		}
	}
}

// A compromised host must not control the terminal.
func TestWhatAHostSaysOfItselfMovesNoTerminal(t *testing.T) {
	const evil = "\x1b]0;owned\a\x1b[2J\u009b31m\x1b[31;1m\r all is well"
	b := fleets()["well"]
	b.hosts[0] = host("rack3-node06", "192.0.2.16", 9*time.Second, says(corev1.NodeReady, corev1.ConditionFalse, time.Hour, "Evil", evil),
		func(m *fleet.Member) { m.Node.Status.NodeInfo.KernelVersion = evil })
	environment := map[string]string{"HOSTLER_SOCKET": serve(t, b)}
	for _, args := range [][]string{{"nodes"}, {"nodes", "-o", "wide"}, {"nodes", "rack3-node06"}} {
		screen, code := onTerminal(t, nil, environment, args...)
		if code != 0 || !strings.Contains(screen, "all is well") {
			t.Fatalf("hostler %v = %d, %q, want what the host says", args, code, screen)
		}
		for _, order := range []string{"\x1b]", "\x1b[2J", "\a", "\u009b", "\r"} {
			if strings.Contains(screen, order) {
				t.Errorf("hostler %v has %q on a terminal: %q", args, order, screen)
			}
		}
		if !strings.Contains(screen, "\x1b[31;1m") && args[len(args)-1] != "wide" {
			t.Errorf("hostler %v = %q, want its own colours", args, screen)
		}
	}
}
