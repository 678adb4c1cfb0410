package cli_test

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
)

// consoleRows is the height of the smallest common console.
const consoleRows = 24

// oneScreen names the scenes that fit on one screen, because they have few problems.
func oneScreen() []string {
	return []string{"starting", "healthy", "beside-a-kubelet", "served", "waiting", "draining", "left", "not-ready", "switched-off"}
}

func TestStatusScreens(t *testing.T) {
	for name, scene := range scenes() {
		t.Run(name, func(t *testing.T) {
			socket := serve(t, &backend{status: scene})
			want := 0
			if scene.ControlPlane.Overdue != "" { // scripts use the exit code
				want = 1
			}
			got := hostler(socket, "status")
			if got.code != want || got.stderr != "" {
				t.Fatalf("hostler status = code %d, %q, want code %d and no error", got.code, got.stderr, want)
			}
			golden(t, "status/"+name, got.stdout)
			if n := strings.Count(got.stdout, "\n"); n >= consoleRows && slices.Contains(oneScreen(), name) {
				t.Errorf("hostler status prints %d lines, want all of them on a console of %d, with the prompt", n, consoleRows)
			}
			for line := range strings.Lines(got.stdout) {
				if n := onScreen(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("a line has %d columns, want at most 80: %s", n, line)
				}
				if line != strings.TrimRight(line, " \n")+"\n" {
					t.Errorf("a line ends in blanks: %q", line)
				}
			}
			golden(t, "status/"+name+"-wide", hostler(socket, "status", "-o", "wide").stdout)
		})
	}
}

// onScreen returns the number of columns of a line, for the characters in the scenes.
func onScreen(line string) int {
	n := 0
	for _, r := range line {
		switch {
		case r == '\u0301': // a combining accent
		case r >= '\u3000' && r <= '\u9fff': // kana and kanji
			n += 2
		default:
			n++
		}
	}
	return n
}

// Each problem has one next step or explains it, and the worst problem comes first.
func TestStatusPutsTheWorstFirstAndNamesTheNextStep(t *testing.T) {
	worst := expiredLease()
	turn(&worst, corev1.NodeReady, corev1.ConditionFalse, time.Minute, status.ReasonNoRuntime, "no container runtime found")
	turn(&worst, corev1.NodeMemoryPressure, corev1.ConditionTrue, 90*time.Second, status.ReasonInsufficientMemory, "52Mi of 251.6Gi memory available")
	turn(&worst, status.ShutdownProtected, corev1.ConditionFalse, time.Hour, status.ReasonNoBus, "no bus")
	turn(&worst, corev1.NodeNetworkUnavailable, corev1.ConditionUnknown, time.Hour, status.ReasonNotMeasured, "too many open files")
	fail(&worst, "last-used", "out of memory", "")
	worst.State.Persisted, worst.State.Message = false, "not persisted: disk full"
	worst.Shutdown.NotStarted = []shutdown.NotStarted{{Unit: "db.service", Reason: "exit-code", Failed: true}, {Unit: "web.service", Reason: "Unit web.service has a bad unit file setting."}}
	screen := hostler(serve(t, &backend{status: worst}), "status").stdout
	at := 0
	for _, want := range []string{
		"LEASE EXPIRED", "NOT READY", "heartbeat: lease not renewed", "next: `hostler doctor`",
		"no container runtime found", "next: run `systemctl start containerd`",
		"MemoryPressure, for 90s: 52Mi", "next: run `systemd-cgtop -m`",
		"shutdown, for 60m: no bus", "next: run `hostler doctor` as root",
		"NetworkUnavailable unknown, for 60m: too many", "next: check that the file",
		"loop last-used: out of memory", "next: `journalctl -u hostler",
		"db.service: stopped for a shutdown that was cancelled, failed after its", "restart: exit-code", "next: `systemctl status db.service` shows why",
		"web.service: stopped for a shutdown", "next: `systemctl status web.service`; hostler keeps retrying",
		"state: not persisted", "next: `df -h /var/lib/hostler`", "\n\n",
	} {
		next := strings.Index(screen[at:], want)
		if next < 0 {
			t.Fatalf("the screen has no %q where it should be:\n%s", want, screen)
		}
		at += next
	}
}

func TestPressureThatIsOverSaysWhenItsConditionIsLifted(t *testing.T) {
	s := healthy()
	turn(&s, corev1.NodeMemoryPressure, corev1.ConditionTrue, 12*time.Minute, status.ReasonInsufficientMemory,
		"no pressure since 2026-11-20T03:09:00Z; the condition is lifted at 2026-11-20T03:14:00Z unless pressure recurs; now 198Gi of 251.6Gi memory available")
	screen := hostler(serve(t, &backend{status: s}), "status").stdout
	want := "\n  MemoryPressure, for 12m: no pressure since 2026-11-20T03:09:00Z; the\n    condition is lifted at 2026-11-20T03:14:00Z unless pressure recurs\n\n"
	if !strings.Contains(screen, want) {
		t.Errorf("the screen is\n%s, want %q in it", screen, want)
	}
}

// The line of images has the current figure.
func TestAPressureSaysWhenItWasMeasured(t *testing.T) {
	s := healthy()
	turn(&s, corev1.NodeDiskPressure, corev1.ConditionTrue, 12*time.Minute, status.ReasonNodeFilesystemSpace, "/ (ext4 on /dev/sda1) has 1% free, threshold 10%")
	condition := &s.Node.Status.Conditions[slices.IndexFunc(s.Node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeDiskPressure })]
	condition.LastHeartbeatTime = metav1.NewTime(ago(8 * time.Second))
	screen := strings.Join(strings.Fields(hostler(serve(t, &backend{status: s}), "status").stdout), " ")
	if want := "DiskPressure, for 12m: / (ext4 on /dev/sda1) has 1% free, threshold 10%, measured 8s ago"; !strings.Contains(screen, want) {
		t.Errorf("the screen is %s, want %q in it", screen, want)
	}
}

// The guard may know the granted delay a moment before the condition does.
func TestStatusRefersOnlyToProblemsThatItShows(t *testing.T) {
	for name, s := range map[string]api.Status{
		"short": overriddenDelay(), "short, and nobody knows of what": func() api.Status {
			s := overriddenDelay()
			s.Shutdown.InhibitDelayMax = delay(0)
			return s
		}(),
		"disarmed": disarmed(), "switched off": switchedOff(), "no runtime": noRuntime(),
	} {
		for since, protected := range map[string]corev1.NodeCondition{
			"just started":       {Status: corev1.ConditionUnknown, Reason: status.ReasonStarting, Message: "hostler has just started"},
			"before a restart":   {Status: corev1.ConditionTrue, Reason: status.ReasonArmed, Message: "a shutdown waits for the pods to stop"},
			"not checked at all": {},
		} {
			t.Run(name+", "+since, func(t *testing.T) {
				s := s
				if protected.Status == "" {
					s.Node = nil
				} else {
					s.Node = s.Node.DeepCopy()
					turn(&s, status.ShutdownProtected, protected.Status, time.Second, protected.Reason, protected.Message)
				}
				screen := hostler(serve(t, &backend{status: s}), "status").stdout
				above, below, _ := strings.Cut(screen, "\nshutdown ")
				line, _, _ := strings.Cut(below, "\nlast boot")
				if strings.Contains(line, "see above") && !strings.Contains(above, "loop shutdown-guard: ") { // no condition explains it
					t.Errorf("the screen is\n%s, want no reference to what it does not have", screen)
				}
			})
		}
	}
}

// Ready keeps its status across a restart of the agent.
func TestRuntimesAreNotMissingBeforeTheyAreLookedFor(t *testing.T) {
	for reason, c := range map[string]struct {
		ready corev1.ConditionStatus
		want  string
	}{
		status.ReasonHostReady: {corev1.ConditionTrue, "runtimes not checked yet "},
		status.ReasonStarting:  {corev1.ConditionUnknown, "runtimes not checked yet "},
		status.ReasonNoRuntime: {corev1.ConditionFalse, "runtimes none found "},
	} {
		s := healthy()
		s.Runtimes = []api.Runtime{}
		turn(&s, corev1.NodeReady, c.ready, time.Minute, reason, "a message")
		if screen := strings.Join(strings.Fields(hostler(serve(t, &backend{status: s}), "status").stdout), " "); !strings.Contains(screen, c.want) {
			t.Errorf("the screen of a host whose Ready is %s, %s says %s, want %q in it", c.ready, reason, screen, c.want)
		}
	}
}

// It may have been a reboot.
func TestAShutdownOfUnknownKindIsNotCalledAShutdown(t *testing.T) {
	for trigger, want := range map[journal.Trigger]string{
		journal.TriggerShutdown:    "last shutdown shutdown or reboot 2026-",
		journal.TriggerServiceStop: "last shutdown shutdown or reboot without logind notification 2026-",
	} {
		s := healthy()
		last := *s.Shutdown.Last
		last.Kind, last.Trigger, s.Shutdown.Last = "", trigger, &last
		if screen := strings.Join(strings.Fields(hostler(serve(t, &backend{status: s}), "status").stdout), " "); !strings.Contains(screen, want) {
			t.Errorf("the screen is %s, want %q in it", screen, want)
		}
	}
}

func TestStatusNamesInodesThatRunOutFirst(t *testing.T) {
	s := healthy()
	s.ImageGC.Filesystems[0].UsedPercent, s.ImageGC.Filesystems[0].InodesUsedPercent = 40, 92
	if screen := hostler(serve(t, &backend{status: s}), "status").stdout; !strings.Contains(screen, "/var/lib/containerd is 40% full, inodes 92%") {
		t.Errorf("the screen is\n%s, want the inodes in it", screen)
	}
}

func TestNothingSuggestsToUncordonDuringAReboot(t *testing.T) {
	for step, want := range map[controlplane.RebootStep]string{
		controlplane.RebootWaiting: "run `hostler uncordon`", controlplane.RebootGranted: "to cancel it and start its pods again, run `hostler reboot --cancel`",
		controlplane.RebootDraining: "to cancel it and start its pods again, run `hostler reboot --cancel`", controlplane.RebootRebooting: "",
		controlplane.RebootVerifying: "to end its checks and give the slot back, run `hostler reboot --cancel`", controlplane.RebootDone: "run `hostler uncordon`",
	} {
		for _, c := range []*maintenance.Cordon{nil, {Unschedulable: true, By: "hostler, for a reboot"}} {
			s := rebootsAt(step, "a message")
			s.Node.Spec.Unschedulable, s.Cordon = true, c
			screen := strings.Join(strings.Fields(hostler(serve(t, &backend{status: s}), "status").stdout), " ")
			if !strings.Contains(screen, want) || !strings.Contains(screen, "closed to new pods") || strings.Contains(screen, "hostler uncordon") != (step == controlplane.RebootWaiting || step == controlplane.RebootDone) {
				t.Errorf("at step %s the screen is\n%s\nwant %q", step, screen, want)
			}
		}
	}
}

func TestStatusSaysWhoCordonedAndWhetherItIsStored(t *testing.T) {
	for name, c := range map[string]struct {
		closed bool
		cordon *maintenance.Cordon
		want   string
	}{
		"cordoned":                        {true, &maintenance.Cordon{Unschedulable: true, By: "alice"}, "closed to new pods by alice "},
		"cordoned from afar":              {true, nil, "closed to new pods; to open it, run `hostler uncordon`"},
		"cordoned, and not yet written":   {false, &maintenance.Cordon{Unschedulable: true, By: "alice", Pending: true}, "alice closed the node to new pods "},
		"uncordoned, and not yet written": {true, &maintenance.Cordon{By: "alice", Pending: true}, "alice opened the node to new pods "},
		"uncordoned":                      {false, &maintenance.Cordon{By: "alice"}, ""},
		"nobody ever decided":             {false, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			s.Node.Spec.Unschedulable, s.Cordon = c.closed, c.cordon
			screen := strings.Join(strings.Fields(hostler(serve(t, &backend{status: s}), "status").stdout), " ")
			reported := strings.Contains(screen, "not yet written to the control plane")
			if !strings.Contains(screen, c.want) || strings.Contains(screen, " cordon ") != (c.want != "") || reported != (c.cordon != nil && c.cordon.Pending) {
				t.Errorf("the screen says %s, want %q in it", screen, c.want)
			}
		})
	}
}

// A fault that several parts of the agent report is shown once.
func TestStatusReportsACauseOnce(t *testing.T) {
	for name, c := range map[string]struct {
		scene api.Status
		cause string
	}{
		"a runtime that is down":     {runtimeDown(), "refused"},
		"a bus that is missing":      {disarmed(), "no such file"},
		"a control plane in trouble": {muchIsWrong(), "disk full"},
	} {
		t.Run(name, func(t *testing.T) {
			screen := strings.Join(strings.Fields(hostler(serve(t, &backend{status: c.scene}), "status").stdout), " ")
			if n := strings.Count(screen, c.cause); n != 1 {
				t.Errorf("the screen has %q %d times, want once: %s", c.cause, n, screen)
			}
		})
	}
}

func TestStatusJSONAndYAMLAreWhatTheAgentSaid(t *testing.T) {
	for name, scene := range scenes() {
		socket := serve(t, &backend{status: scene})
		text := hostler(socket, "status", "-o", "json").stdout
		var got, want any
		data, err := json.Marshal(scene)
		if err != nil {
			t.Fatal(err)
		}
		if json.Unmarshal([]byte(text), &got) != nil || json.Unmarshal(data, &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: status -o json = %s, want %s", name, text, data)
		}
		var fromYAML any
		text = hostler(socket, "status", "-o", "yaml").stdout
		if err := yaml.Unmarshal([]byte(text), &fromYAML); err != nil || !reflect.DeepEqual(fromYAML, want) {
			t.Errorf("%s: status -o yaml = %s, %v, want %s", name, text, err, data)
		}
	}
}

func TestStatusJSONKeysAreThePromisedOnes(t *testing.T) {
	var got map[string]any
	text := hostler(serve(t, &backend{status: healthy()}), "status", "-o", "json").stdout
	golden(t, "status/healthy-json", text)
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"node", "lease", "controlPlane", "runtimes", "owners", "topology", "shutdown", "imageGC", "containerGC", "loops"} {
		if _, there := got[key]; !there {
			t.Errorf("status -o json has no key %q, only %v", key, slices.Sorted(maps.Keys(got)))
		}
	}
}

// An infinite delay is shown as such in each format.
func TestAnInfiniteDelayIsShownAsInfinite(t *testing.T) {
	s := healthy()
	s.Shutdown.InhibitDelayMax.Duration = math.MaxInt64
	p := phases()
	p.Granted.Duration = math.MaxInt64
	socket := serve(t, &backend{status: s, phases: p})
	for format, want := range map[string][2]string{
		"table": {"logind grants time without limit", "logind grants time without limit"},
		"json":  {`"inhibitDelayMax": "infinity"`, `"granted": "infinity"`},
		"yaml":  {"inhibitDelayMax: infinity", "granted: infinity"},
	} {
		for i, args := range [][]string{{"status", "-o", format}, {"shutdown", "plan", "-o", format}} {
			got := hostler(socket, args...).stdout
			if text := strings.Join(strings.Fields(got), " "); !strings.Contains(text, want[i]) || strings.Contains(text, "2562047h") {
				t.Errorf("hostler %v =\n%s\nwant %q", args, got, want[i])
			}
		}
	}
}

func TestWatchEndsWithASignal(t *testing.T) {
	for _, format := range []string{"table", "json", "yaml"} {
		signals := make(chan os.Signal, 1)
		socket := serve(t, &backend{status: healthy(), entered: signals})
		once := hostler(serve(t, &backend{status: healthy()}), "status", "-o", format)
		got := hostlerUntil(signals, socket, "status", "--watch", "-o", format)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("status --watch -o %s ended with %d, %q, want 0 and nothing", format, got.code, got.stderr)
		}
		if got.stdout != "" && got.stdout != once.stdout { // empty if the signal came before the answer
			t.Errorf("status --watch -o %s printed %q, want one screen, without escape codes", format, got.stdout)
		}
	}
}

func TestAnInterruptedCommandReportsIt(t *testing.T) {
	for _, args := range [][]string{{"status"}, {"nodes"}, {"ps"}, {"images"}, {"gc", "plan"}, {"gc", "run"}, {"gc", "history"}, {"shutdown", "plan"}, {"doctor"}} {
		signals := make(chan os.Signal, 1)
		socket := serve(t, &backend{hang: true, entered: signals})
		got := hostlerUntil(signals, socket, args...)
		if got.code != 1 || got.stderr != "hostler: interrupted\n" {
			t.Errorf("%v, interrupted = %d, %q, want 1 and that it was", args, got.code, got.stderr)
		}
	}
}

func TestStatusHidesAShortageThatIsOver(t *testing.T) {
	s := diskFull()
	s.ImageGC.InodesHighThresholdPercent = 90
	s.ImageGC.LastRun.Warnings = []string{"image filesystem /var/lib/containerd (/dev/nvme1n1) is 100% full: nothing more to remove"}
	for used, shown := range map[int]bool{100: true, 60: false} {
		s.ImageGC.Filesystems[0].UsedPercent = used
		if out := hostler(serve(t, &backend{status: s}), "status").stdout; strings.Contains(out, "did not free enough") != shown {
			t.Errorf("hostler status of a filesystem that is %d%% full now = %s, want the last collection's warning shown: %t", used, out, shown)
		}
	}
}
