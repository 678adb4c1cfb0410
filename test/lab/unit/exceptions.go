package unit

import (
	"maps"
	"slices"
	"strings"
)

// Exception is why a directive of a unit file is of no effect in the lab.
type Exception struct {
	Reason string
	// Instead is what holds in the lab; empty: the file's own word, without consequence.
	Instead string
}

// spawner stands for the program that is a unit's own process in the lab.
const spawner = "the spawner"

// nothing stands for a list that is empty in the lab.
const nothing = "nothing"

// Exceptions are the directives of hostler.service that are of no effect in the lab, where
// tests do what a service manager does over a service's life. All others are carried out.
func Exceptions() map[string]Exception {
	const (
		alone    = "the lab's manager has no other units, and nothing starts with it"
		reported = "tests take what the agent tells its service manager, and look at it (lab.Notify)"
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

// dropIn is the drop-in with the differences from the unit file. command is that of the spawner.
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
			b.WriteString(directive + "=\n" + directive + "=" + command + "\n") // it is a list
		case nothing:
			b.WriteString(directive + "=\n")
		default:
			b.WriteString(directive + "=" + value + "\n")
		}
	}
	// Not of the unit: what a system's manager does by itself, and a user's does not; and one
	// instance is not to take the runtime folder away from another.
	b.WriteString("WorkingDirectory=/\nStandardOutput=append:" + log + "\nStandardError=inherit\nRuntimeDirectoryPreserve=yes\n")
	return b.String()
}

// Directives are the names of what a unit file says, and the values of each, in order.
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
