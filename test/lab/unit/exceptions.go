package unit

import (
	"maps"
	"slices"
	"strings"
)

// Exception is a directive of a unit file that has no effect in the lab, with the reason.
type Exception struct {
	Reason string
	// Instead is the value in the lab. If empty, it is the value of the file, without effect.
	Instead string
}

// spawner stands for the program of a unit's own process in the lab.
const spawner = "the spawner"

// nothing stands for an empty list.
const nothing = "nothing"

// Exceptions are the directives of hostler.service that have no effect in the lab, because tests do
// the job of the service manager there. All others are applied.
func Exceptions() map[string]Exception {
	const (
		alone    = "the lab's manager has no other units, and nothing starts with it"
		reported = "tests receive the notifications to the service manager (lab.Notify)"
		ends     = "tests end the agent, in every way, and start it again"
		human    = "is for people"
	)
	return map[string]Exception{
		"Description":           {Reason: human},
		"Documentation":         {Reason: human},
		"After":                 {Reason: alone},
		"WantedBy":              {Reason: alone},
		"StartLimitIntervalSec": {Reason: "each start is a unit of its own"},

		"ExecStart":    {Reason: "the spawner starts the agent as the test wants it", Instead: spawner},
		"ExecReload":   {Reason: "tests reload the agent"},
		"ExecStopPost": {Reason: "it asks the systemd that is PID 1, which is none of the lab's", Instead: nothing},

		"Type":                   {Reason: reported, Instead: "exec"},
		"NotifyAccess":           {Reason: reported, Instead: "none"},
		"WatchdogSec":            {Reason: reported, Instead: "0"},
		"FileDescriptorStoreMax": {Reason: reported},

		"Restart":                {Reason: ends},
		"RestartSec":             {Reason: ends},
		"RestartForceExitStatus": {Reason: ends},
		"SuccessExitStatus":      {Reason: ends},
		"TimeoutStopSec":         {Reason: ends},
		"KillMode":               {Reason: "what the agent has left behind is not to be ended before a test has seen it", Instead: "process"},
		"OOMPolicy":              {Reason: "no test takes all memory"},

		"RuntimeDirectory": {Reason: "a user's manager makes it below a folder of its own; in /run the agent makes what is missing"},
	}
}

// dropIn returns the drop-in with the exceptions. command is the command line of the spawner.
func dropIn(command, log string) string {
	var b strings.Builder
	b.WriteString("[Service]\n")
	exceptions := Exceptions()
	for _, directive := range slices.Sorted(maps.Keys(exceptions)) {
		value := exceptions[directive].Instead
		if value == "" {
			continue
		}
		switch value {
		case spawner:
			b.WriteString(directive + "=\n" + directive + "=" + command + "\n") // the first resets the list
		case nothing:
			b.WriteString(directive + "=\n")
		default:
			b.WriteString(directive + "=" + value + "\n")
		}
	}
	// These are not about the unit: a system manager sets the first three by default, a user's manager
	// does not. The last one keeps the runtime folder that several instances share.
	b.WriteString("WorkingDirectory=/\nStandardOutput=append:" + log + "\nStandardError=inherit\nRuntimeDirectoryPreserve=yes\n")
	return b.String()
}

// Directives returns the directives of a unit file, with the values of each in order.
func Directives(file string) map[string][]string {
	found := map[string][]string{}
	for line := range strings.Lines(file) {
		line = strings.TrimSpace(line)
		name, value, is := strings.Cut(line, "=")
		if is && !strings.HasPrefix(line, "#") {
			found[name] = append(found[name], value)
		}
	}
	return found
}
