package inspect

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

// Conditions converts the results of the custom checks to doctor's facts.
func Conditions(directory string, checks []conditions.Check, faults []conditions.Fault) doctor.Conditions {
	facts := doctor.Conditions{Directory: directory, Number: len(checks)}
	for _, f := range faults {
		facts.Broken = append(facts.Broken, doctor.Fix{Message: f.String(), Command: f.Path + ": " + f.Fix})
	}
	for _, check := range checks {
		switch {
		case check.Answer == status.Problem:
			facts.Problems = append(facts.Problems, doctor.Fix{Message: fmt.Sprintf("%s is %s: %s", check.Type, corev1.ConditionTrue, check.Message), Command: string(check.Type) + ": fix what it reports; to run the check: " + check.ManualCommand()})
		case check.Answer == status.TimedOut || check.Answer == status.Undecided || check.Answer == status.NotRun && !check.Faulty:
			facts.Unknown = append(facts.Unknown, doctor.Fix{Message: check.Path + ": " + check.Message, Command: check.RunHint()})
		}
		if check.LocalOnly {
			facts.Local = append(facts.Local, string(check.Type))
		}
	}
	return facts
}

// NodeConditions returns the abnormal conditions of the Node: which resources the host lacks, and
// why pods on it are unreachable. It omits conditions that have their own check: Ready, the
// shutdown protection, and custom conditions.
func NodeConditions(list []corev1.NodeCondition, facts status.Facts, o status.AddressOptions) (pressures, network []doctor.Fix) {
	steps := status.NextSteps(list, facts)
	for _, c := range list {
		fix := doctor.Fix{Message: fmt.Sprintf("%s is %s: %s", c.Type, c.Status, c.Message), Command: steps[c.Type]}
		switch {
		case (status.Transition{New: c}).Good(), c.Type == corev1.NodeReady, c.Type == status.ShutdownProtected, status.IsCustom(c.Type):
		case c.Type == corev1.NodeNetworkUnavailable:
			network = append(network, fix)
		default:
			pressures = append(pressures, fix)
		}
	}
	if text := AddressMissing(list, facts, o); text != "" {
		network = append(network, doctor.Fix{Message: text, Command: status.StepAddressMissing(text)})
	}
	return pressures, network
}

// AddressMissing returns which configured addresses the host does not have; empty if the condition
// NetworkUnavailable reports that.
func AddressMissing(list []corev1.NodeCondition, facts status.Facts, o status.AddressOptions) string {
	err := status.CheckAddresses(facts.Network, o)
	if err == nil || slices.ContainsFunc(list, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status != corev1.ConditionFalse
	}) {
		return ""
	}
	return err.Error()
}

// conditionsAlone reads the files of custom checks if the agent does not answer.
func conditionsAlone(cfg config.Config) doctor.Conditions {
	programs, faults := conditions.Read(cfg.ConditionsPolicy())
	facts := Conditions(cfg.Conditions.Directory, nil, faults)
	facts.Number = len(programs)
	return facts
}

// rebootsAlone reads the files of the checks that may request a reboot if the agent does not answer.
func rebootsAlone(cfg config.Config) doctor.Reboots {
	r := doctor.Reboots{Enabled: cfg.Reboot.Enabled}
	if r.Enabled {
		_, faults := conditions.Read(cfg.Reboot.ChecksPolicy())
		r.Broken = Conditions(cfg.Reboot.Checks, nil, faults).Broken
	}
	return r
}
