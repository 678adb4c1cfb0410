package rebooters

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// rebootVerbs are commands of systemctl, and names of systemd's actions.
var rebootVerbs = []string{"reboot", "kexec", "soft-reboot"}

func isRebootUnit(name string) bool {
	name = strings.TrimPrefix(name, "systemd-") // such as systemd-reboot.service
	return slices.Contains(rebootVerbs, strings.TrimSuffix(strings.TrimSuffix(name, ".target"), ".service"))
}

// shellTokens matches words, quoted parts of words, comments and operators.
var shellTokens = regexp.MustCompile(`'[^']*'|"(?:\\.|[^"\\])*"|[;&|()\n]|(?:\\.|[^\s;&|()'"\\])+`)

// commands returns the words of each simple command in a shell script. It does not interpret variables
// and here-documents.
func commands(script string) (all [][]string) {
	script = strings.ReplaceAll(script, "\\\n", " ")
	var words []string
	end, comment := -1, false
	for _, at := range shellTokens.FindAllStringIndex(script, -1) {
		token := script[at[0]:at[1]]
		switch {
		case token == "\n", !comment && strings.ContainsAny(token[:1], ";&|()"):
			if len(words) > 0 {
				all = append(all, words)
			}
			words, comment = nil, false
			continue
		case comment:
			continue
		case token[0] == '#' && at[0] != end:
			comment = true
			continue
		case token[0] == '\'', token[0] == '"':
			token = token[1 : len(token)-1]
		}
		if at[0] == end && len(words) > 0 {
			words[len(words)-1] += token
		} else {
			words = append(words, token)
		}
		end = at[1]
	}
	if len(words) > 0 {
		all = append(all, words)
	}
	return all
}

var assignment = regexp.MustCompile(`^\w+=`)

// reboots reports whether a simple command reboots the host.
func reboots(words []string) bool {
	for len(words) > 0 && (assignment.MatchString(words[0]) || slices.Contains([]string{"if", "then", "elif", "else", "do", "while", "until", "!", "{", "exec", "time"}, words[0])) {
		words = words[1:]
	}
	if len(words) == 0 {
		return false
	}
	args := words[1:]
	has := func(arg string) bool { return slices.Contains(args, arg) }
	switch path.Base(words[0]) {
	case "reboot":
		return true
	case "shutdown":
		return slices.ContainsFunc(args, func(arg string) bool {
			return arg == "--reboot" || strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.Contains(arg, "r")
		})
	case "init", "telinit":
		return has("6")
	case "systemctl":
		isOption := func(arg string) bool { return strings.HasPrefix(arg, "-") }
		args = slices.DeleteFunc(slices.Clone(args), isOption)
		return len(args) > 0 && slices.Contains(rebootVerbs, args[0]) ||
			len(args) > 1 && slices.Contains([]string{"start", "isolate"}, args[0]) && slices.ContainsFunc(args, isRebootUnit)
	case "kexec":
		return has("-e") || has("--exec")
	case "bootc":
		return has("--apply")
	case "systemd-sysupdate":
		return has("reboot")
	case "sh", "bash", "dash":
		i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") && strings.HasSuffix(arg, "c") })
		return i >= 0 && i+1 < len(args) && slices.ContainsFunc(commands(args[i+1]), reboots)
	case "sudo", "env", "nice", "ionice", "nohup", "setsid", "timeout", "flock", "chronic", "systemd-run", "nsenter", "chroot":
		for i := range args {
			if reboots(args[i:]) {
				return true
			}
		}
	}
	return false
}

// scriptOf returns the script that a command runs, if the command has its absolute path.
func scriptOf(words []string) string {
	if len(words) > 1 && slices.Contains([]string{"sh", "bash", "dash"}, path.Base(words[0])) {
		words = words[1:]
	}
	if len(words) == 0 || !path.IsAbs(words[0]) {
		return ""
	}
	return words[0]
}
