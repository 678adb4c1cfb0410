package doctor

import (
	"path"
	"strings"

	"hostler.io/hostler/systemd"
)

// ConfigOf is the configuration file of a service, from the flag of its command or from its environment;
// empty for the default one. It does not know the variables of EnvironmentFile=.
func ConfigOf(r systemd.Run) string {
	file := ""
	for _, setting := range r.Environment {
		if value, found := strings.CutPrefix(setting, "HOSTLER_CONFIG="); found {
			file = value
		}
	}
	for _, arguments := range r.Commands {
		for i, argument := range arguments {
			if value, found := strings.CutPrefix(argument, "--config="); found {
				file = value
			} else if argument == "--config" && i+1 < len(arguments) {
				file = arguments[i+1]
			}
		}
	}
	if file == "" {
		return ""
	}
	return path.Join("/", file) // the working directory of a service
}
