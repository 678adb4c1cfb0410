package inspect

import (
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

// Conditions says what the checks found in the doctor's words.
func Conditions(directory string, checks []conditions.Check, faults []conditions.Fault) doctor.Conditions {
	facts := doctor.Conditions{Directory: directory, Number: len(checks)}
	for _, f := range faults {
		facts.Broken = append(facts.Broken, doctor.Mend{Message: f.String(), Command: f.Mend})
	}
	for _, check := range checks {
		switch {
		case check.Answer == status.TimedOut || check.Answer == status.Undecided || check.Answer == status.NotRun && !check.Faulty:
			facts.Silent = append(facts.Silent, doctor.Mend{Message: check.Path + ": " + check.Message, Command: "run it manually: " + runByHand(check)})
		case check.LocalOnly:
			facts.Local = append(facts.Local, string(check.Type))
		}
	}
	return facts
}

// runByHand is what a person types to see what a check says.
func runByHand(c conditions.Check) string {
	if c.User == "root" {
		return c.Path
	}
	return "setpriv --reuid=" + c.User + " --regid=$(id -g " + c.User + ") --init-groups --no-new-privs " + c.Path
}

// conditionsAlone looks at the files on a host whose agent does not answer.
func conditionsAlone(cfg config.Config) doctor.Conditions {
	programs, faults := conditions.Read(cfg.ConditionsPolicy())
	facts := Conditions(cfg.Conditions.Directory, nil, faults)
	facts.Number = len(programs)
	return facts
}
