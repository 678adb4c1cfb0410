package status_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// stalling enables all contention conditions, on a host with few stalls.
func stalling(t testing.TB) (status.Facts, status.Options) {
	facts, o := healthy(), policyOptions()
	o.Pressure.PSI = []status.StallLimit{
		{Resource: "cpu", Kind: "some", Window: 5 * time.Minute, Threshold: threshold(t, "60%")},
		{Resource: "memory", Kind: "full", Window: time.Minute, Threshold: threshold(t, "20%")},
		{Resource: "io", Kind: "some", Window: 10 * time.Second, Threshold: threshold(t, "30.5%")},
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	little := probe.Averages{TenSeconds: 1.1, Minute: 2, FiveMinutes: 0}
	for _, resource := range o.Pressure.Stalls() {
		facts.Stalls = append(facts.Stalls, probe.Stall{Resource: resource, Some: little, Full: little})
	}
	return facts, o
}

func TestContention(t *testing.T) {
	const cpu, memory, io = status.CPUContention, status.MemoryContention, status.IOContention
	for _, c := range []struct {
		name    string
		spoil   func(cpu, memory, io *probe.Stall)
		kind    corev1.NodeConditionType
		status  corev1.ConditionStatus
		reason  string
		message string
	}{
		{"CPUs that hardly stall", nil, cpu, "False", "StallsBelowThreshold", "CPU stalled some 0% of the last 5 min"},
		{"memory that hardly stalls", nil, memory, "False", "StallsBelowThreshold", "memory stalled full 2% of the last minute"},
		{"disks that hardly stall", nil, io, "False", "StallsBelowThreshold", "I/O stalled some 1.1% of the last 10 s"},
		{
			"memory above its threshold", func(_, memory, _ *probe.Stall) { memory.Full.Minute = 34 },
			memory, "True", "StallsAboveThreshold", "memory stalled full 34% of the last minute, threshold 20%",
		},
		{
			"memory a hair above its threshold", func(_, memory, _ *probe.Stall) { memory.Full.Minute = 20.01 },
			memory, "True", "StallsAboveThreshold", "memory stalled full 20.1% of the last minute, threshold 20%",
		},
		{
			"memory at its threshold", func(_, memory, _ *probe.Stall) { memory.Full.Minute = 20 },
			memory, "False", "StallsBelowThreshold", "memory stalled full 20% of the last minute",
		},
		{
			"memory that stalls in another way, and did over another time",
			func(_, memory, _ *probe.Stall) {
				memory.Some.Minute, memory.Full.TenSeconds, memory.Full.FiveMinutes = 99, 99, 99
			},
			memory, "False", "StallsBelowThreshold", "memory stalled full 2% of the last minute",
		},
		{
			"CPUs above their threshold", func(cpu, _, _ *probe.Stall) { cpu.Some.FiveMinutes = 60.5 },
			cpu, "True", "StallsAboveThreshold", "CPU stalled some 60.5% of the last 5 min, threshold 60%",
		},
		{
			"disks above their threshold", func(_, _, io *probe.Stall) { io.Some.TenSeconds = 31 },
			io, "True", "StallsAboveThreshold", "I/O stalled some 31% of the last 10 s, threshold 30.5%",
		},
		{
			"a kernel without PSI", func(_, _, io *probe.Stall) { io.Absent = true },
			io, "Unknown", "PSIUnavailable", "the kernel provides no pressure stall information (/proc/pressure/io); boot it with psi=1 on its command line",
		},
		{
			"a file that cannot be read", func(_, _, io *probe.Stall) { io.Problem = "read /proc/pressure/io: permission denied" },
			io, "Unknown", "NotMeasured", "read /proc/pressure/io: permission denied",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts, o := stalling(t)
			if c.spoil != nil {
				c.spoil(&facts.Stalls[0], &facts.Stalls[1], &facts.Stalls[2])
			}
			conditions, _ := status.Conditions(facts, o, status.Memory{}, noon)
			got := condition(t, conditions, c.kind)
			if got.Status != c.status || got.Reason != c.reason || got.Message != c.message {
				t.Errorf("Conditions() has %s %s %q, want %s %s %q", got.Status, got.Reason, got.Message, c.status, c.reason, c.message)
			}
			if len(conditions) != 9 || conditions[8].Type != corev1.NodeReady {
				t.Errorf("Conditions() has %d, the last %s, want 9 and Ready", len(conditions), conditions[len(conditions)-1].Type)
			}
		})
	}
}

func TestContentionIsHeldAndItsFiguresCauseNoWrites(t *testing.T) {
	facts, o := stalling(t)
	facts.Stalls[1].Full.Minute = 50
	first, memory := status.Node(facts, o, status.Memory{}, noon)
	facts.Stalls[1].Full.Minute = 30
	second, memory := status.Node(facts, o, memory, noon.Add(10*time.Second))
	if status.Changed(&first.Status, &second.Status) {
		t.Error("Changed() = true after the figure within the message moved, want false")
	}
	facts.Stalls[1].Full.Minute = 1
	third, memory := status.Node(facts, o, memory, noon.Add(time.Minute))
	c := condition(t, third.Status.Conditions, status.MemoryContention)
	if c.Status != "True" || c.Reason != "StallsAboveThreshold" || !strings.HasSuffix(c.Message, "; now memory stalled full 1% of the last minute") {
		t.Errorf("within the transition period the condition is %s %s %q, want it held, with the figure of now", c.Status, c.Reason, c.Message)
	}
	fourth, _ := status.Node(facts, o, memory, noon.Add(10*time.Second+5*time.Minute))
	if c := condition(t, fourth.Status.Conditions, status.MemoryContention); c.Status != "False" || !c.LastTransitionTime.Time.Equal(noon.Add(10*time.Second+5*time.Minute)) {
		t.Errorf("after the transition period the condition is %+v, want it lowered", c)
	}
	if !status.Changed(&third.Status, &fourth.Status) {
		t.Error("Changed() = false after the condition was lowered, want true")
	}
}

func TestOnlyContentionThatIsSwitchedOnIsReported(t *testing.T) {
	facts, o := stalling(t)
	all, memory := status.Conditions(facts, o, status.Memory{}, noon)
	if own := status.OwnConditions(all); len(own) != 4 {
		t.Errorf("OwnConditions() = %v, want the three of contention beside ShutdownProtected", own)
	}
	o.Pressure.PSI = o.Pressure.PSI[1:2] // after a reload, before the next check
	some, _ := status.Conditions(facts, o, memory, noon)
	if own := status.OwnConditions(some); len(own) != 2 || own[0].Type != status.MemoryContention {
		t.Errorf("OwnConditions() = %v, want MemoryContention and ShutdownProtected", own)
	}
	if got := status.Transitions(all, some); got != nil {
		t.Errorf("Transitions() = %v, want none: what is switched off is no news of the host", got)
	}
	facts.Stalls = nil // before a reload
	if none, _ := status.Conditions(facts, o, memory, noon); len(none) != 6 {
		t.Errorf("Conditions() = %v, want none of contention until it is measured", none)
	}
	if stalls := status.DefaultPolicy().Stalls(); stalls != nil {
		t.Errorf("Stalls() = %v by default, want none", stalls)
	}
}

func TestTransitionsOfContention(t *testing.T) {
	facts, o := stalling(t)
	before, memory := status.Conditions(facts, o, status.Memory{}, noon)
	for i := range facts.Stalls {
		facts.Stalls[i].Some = probe.Averages{TenSeconds: 99, Minute: 99, FiveMinutes: 99}
		facts.Stalls[i].Full = facts.Stalls[i].Some
	}
	after, memory := status.Conditions(facts, o, memory, noon.Add(time.Minute))
	reasons := func(before, after []corev1.NodeCondition) []string {
		var list []string
		for _, tr := range status.Transitions(before, after) {
			list = append(list, tr.EventType()+" "+tr.EventReason())
		}
		return list
	}
	if got, want := reasons(before, after), []string{"Warning NodeHasCPUContention", "Warning NodeHasMemoryContention", "Warning NodeHasIOContention"}; !slices.Equal(got, want) {
		t.Errorf("Transitions() = %v, want %v", got, want)
	}
	facts, _ = stalling(t)
	facts.Stalls[2].Absent = true
	last, _ := status.Conditions(facts, o, memory, noon.Add(time.Hour))
	if got, want := reasons(after, last), []string{"Normal NodeHasNoCPUContention", "Normal NodeHasNoMemoryContention", "Warning NodeConditionUnknown"}; !slices.Equal(got, want) {
		t.Errorf("Transitions() = %v, want %v", got, want)
	}
}
