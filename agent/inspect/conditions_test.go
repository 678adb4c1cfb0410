package inspect

import (
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/status/probe"
)

func TestWhatTheDoctorLearnsOfChecks(t *testing.T) {
	fault := conditions.Fault{Path: "/c/broken", Problem: "may be written", Fix: "chmod"}
	facts := Conditions("/c", []conditions.Check{
		{Path: "/c/broken", Answer: status.NotRun, Message: fault.String() + "; chmod", Faulty: true},
		{Path: "/c/fine", Answer: status.Passed},
		{Path: "/c/bad", Type: "example.com/Bad", User: "root", Answer: status.Problem, Message: "it smokes", LocalOnly: true},
		{Path: "/c/new", Answer: status.NotRunYet},
		{Path: "/c/closed", User: "nobody", Answer: status.NotRun, Message: "start /c/closed: permission denied"},
		{Path: "/c/slow", User: "root", Answer: status.TimedOut, Message: "the check did not end"},
		{Path: "/c/local", Type: "example.com/A", Answer: status.Passed, LocalOnly: true},
	}, []conditions.Fault{fault})
	if len(facts.Broken) != 1 || facts.Broken[0].Command != "/c/broken: chmod" || len(facts.Local) != 2 || facts.Number != 7 {
		t.Errorf("Conditions() = %+v, want one that is broken, two that are shown here only", facts)
	}
	if want := []doctor.Fix{{Message: "example.com/Bad is True: it smokes", Command: "example.com/Bad: fix what it reports; to run the check: setpriv --reset-env /c/bad"}}; !slices.Equal(facts.Problems, want) {
		t.Errorf("Conditions() = %+v, want problems %+v", facts, want)
	}
	if len(facts.Unknown) != 2 || !strings.HasSuffix(facts.Unknown[0].Command, "--no-new-privs /c/closed") || facts.Unknown[1].Command != "/c/slow: to run it manually: setpriv --reset-env /c/slow" {
		t.Errorf("Conditions() = %+v, want two that do not say anything, each with how to run it", facts.Unknown)
	}
}

func TestChecksAreKnownWithoutAnAgent(t *testing.T) {
	cfg := config.Default()
	cfg.Conditions.Directory = filepath.Join(t.TempDir(), "conditions.d")
	if err := os.Mkdir(cfg.Conditions.Directory, 0o755); err != nil {
		t.Fatal(err)
	}
	me, err := user.Current() // the host may lack hostler-exec
	if err != nil {
		t.Fatal(err)
	}
	header := "#!/bin/sh\n# hostler:\n#   user: " + me.Username + "\n"
	for name, text := range map[string]string{"own": header, "foreign": header + "#   type: example.com/A\n", "faulty": header + "#   x: y\n"} {
		if err := os.WriteFile(cfg.Conditions.Directory+"/"+name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if facts := conditionsAlone(cfg); facts.Number != 2 || len(facts.Broken) != 1 {
		t.Errorf("conditionsAlone() = %+v, want two checks and a fault", facts)
	}
}

func TestBrokenChecksOfRebootsAreKnownWithoutAnAgent(t *testing.T) {
	cfg := config.Default()
	cfg.Reboot.Checks = filepath.Join(t.TempDir(), "reboot.d")
	if err := os.Mkdir(cfg.Reboot.Checks, 0o755); err != nil {
		t.Fatal(err)
	}
	me, err := user.Current() // the host may lack hostler-exec
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"fine": 0o755, "not-executable": 0o644} {
		if err := os.WriteFile(filepath.Join(cfg.Reboot.Checks, name), []byte("#!/bin/sh\n# hostler:\n#   user: "+me.Username+"\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if r := rebootsAlone(cfg); r.Enabled || len(r.Broken) > 0 {
		t.Errorf("rebootsAlone() = %+v, want nothing because reboots are disabled", r)
	}
	cfg.Reboot.Enabled = true
	if r := rebootsAlone(cfg); !r.Enabled || len(r.Broken) != 1 || !strings.Contains(r.Broken[0].Message, "not-executable") || r.Broken[0].Command == "" {
		t.Errorf("rebootsAlone() = %+v, want the file that is not executable", r)
	}
}

func TestTheDoctorLearnsWhatTheNodeLacks(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, is corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: is, Reason: reason, Message: "m"}
	}
	pressures, network := NodeConditions([]corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, status.ReasonSufficientMemory),
		condition(corev1.NodeDiskPressure, corev1.ConditionUnknown, status.ReasonNotMeasured),
		condition(status.IOContention, corev1.ConditionTrue, status.ReasonStallsAboveThreshold),
		condition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue, status.ReasonAddressMissing),
		condition(status.ShutdownProtected, corev1.ConditionFalse, status.ReasonNoLock),
		condition(corev1.NodeReady, corev1.ConditionFalse, status.ReasonNoRuntime),
		condition("example.com/Bad", corev1.ConditionTrue, "Bad"),
	}, status.Facts{}, status.AddressOptions{Internal: []string{"192.0.2.71"}})
	messages := func(fixes []doctor.Fix) (list []string) {
		for _, m := range fixes {
			if m.Command == "" {
				t.Errorf("NodeConditions() = %+v, want a next step", m)
			}
			list = append(list, m.Message)
		}
		return list
	}
	if got, want := messages(pressures), []string{"DiskPressure is Unknown: m", "hostler.io/IOContention is True: m"}; !slices.Equal(got, want) {
		t.Errorf("NodeConditions() = pressures %q, want %q", got, want)
	}
	if got, want := messages(network), []string{"NetworkUnavailable is True: m"}; !slices.Equal(got, want) {
		t.Errorf("NodeConditions() = network %q, want %q", got, want)
	}
}

// A host with one of two addresses is reachable, and the other one may be mistyped.
func TestTheDoctorLearnsOfAnAddressThatIsMissingBesideAnother(t *testing.T) {
	facts := status.Facts{Network: probe.Network{Addresses: []probe.Address{{IP: netip.MustParseAddr("10.0.0.5"), Bits: 24, Interface: "eth0", Up: true, Carrier: true}}}}
	o := status.AddressOptions{Internal: []string{"10.0.0.5", "2001:db8::5"}}
	available := []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse}}
	want := []doctor.Fix{{Message: "node.address.internal: no interface has an address for 2001:db8::5", Command: status.StepAddressMissing("no interface has an address for 2001:db8::5")}}
	if _, network := NodeConditions(available, facts, o); !slices.Equal(network, want) {
		t.Errorf("NodeConditions() = network %+v, want %+v", network, want)
	}
	if err := status.MissingAddresses(facts.Network, o); err == nil || err.Error() != want[0].Message+"\nhint: "+want[0].Command {
		t.Errorf("MissingAddresses() = %v, want %+v", err, want)
	}
	o.Internal, o.External = o.Internal[:1], []string{"203.0.113.7"}
	if _, network := NodeConditions(available, facts, o); len(network) > 0 {
		t.Errorf("NodeConditions() = network %+v, want none: the external address is behind NAT", network)
	}
}
