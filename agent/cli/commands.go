package cli

import (
	"regexp"
	"slices"
	"strings"
)

// withoutEndpoints prevents ETCDCTL_ENDPOINTS from overriding the endpoint flags of etcdctl.
const withoutEndpoints = "env -u ETCDCTL_ENDPOINTS "

var (
	// commandBegins matches what precedes an etcd command in a text, and the start of the command.
	commandBegins = regexp.MustCompile(`(^|: |; )((?:` + withoutEndpoints + `)?etcdctl )`)
	// asRoot matches the user for the following commands.
	asRoot = regexp.MustCompile(`(?:: |^)as etcd root, for [^\n]*?\(ignore "already exists"\)$`)
)

// separate puts each etcd command in a text on its own line, so that users can copy it.
func separate(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		prose, commands, after := cutCommands(strings.TrimSuffix(line, "\n"))
		for len(commands) > 0 {
			if prose != "" {
				lines = append(lines, prose+":")
			}
			lines = append(lines, commands...)
			prose, commands, after = cutCommands(after)
		}
		if prose != "" || line == "\n" {
			lines = append(lines, prose)
		}
	}
	return strings.Join(lines, "\n")
}

// isCommand reports whether a line is an etcd command.
func isCommand(line string) bool {
	_, command, found := strings.Cut(line, "etcdctl ")
	before := strings.TrimSuffix(line, "etcdctl "+command)
	return found && (before == "" || before == withoutEndpoints)
}

// cutCommands returns the first list of etcd commands in a line, and the text before and after it.
func cutCommands(line string) (prose string, commands []string, after string) {
	at := commandBegins.FindStringSubmatchIndex(line)
	if at == nil {
		return line, nil, ""
	}
	prose, after = line[:at[0]], line[at[4]:]
	for isCommand(after) {
		end := commandEnd(after)
		commands, after = append(commands, strings.TrimSpace(after[:end])), strings.TrimPrefix(after[end:], "; ")
	}
	return prose, commands, after
}

// commandEnd returns the end of a command: the first semicolon that is not quoted.
func commandEnd(text string) int {
	quoted := false
	for i, r := range text {
		switch {
		case r == '\'':
			quoted = !quoted
		case r == ';' && !quoted:
			return i
		}
	}
	return len(text)
}

// once replaces a list of etcd commands if this screen already shows all of them. Several problems often
// need the same commands. A list of which some are shown is printed whole: parts of a list are of no use.
func (t *table) once(text string) string {
	return replaceCommands(text, ": see above", func(list []string) bool {
		if !slices.ContainsFunc(list, func(command string) bool { return !slices.Contains(t.shown, command) }) {
			return false
		}
		t.shown = append(t.shown, list...)
		return true
	})
}

// replaceCommands replaces each list of etcd commands in a text, unless keep returns true for it.
func replaceCommands(text, by string, keep func(list []string) bool) string {
	lines := strings.Split(separate(text), "\n")
	var kept []string
	for i := 0; i < len(lines); {
		n := 0
		for i+n < len(lines) && isCommand(lines[i+n]) {
			n++
		}
		last := len(kept) - 1
		switch {
		case n == 0:
			kept = append(kept, lines[i])
			n = 1
		case keep(lines[i : i+n]):
			kept = append(kept, lines[i:i+n]...)
		case last >= 0 && !isCommand(kept[last]):
			kept[last] = asRoot.ReplaceAllString(strings.TrimSuffix(kept[last], ":"), "") + by
		}
		i += n
	}
	return strings.TrimPrefix(strings.Join(kept, "\n"), ": ")
}

// cell returns text on one line for a wide table, without etcd commands that this screen already
// shows.
func (t *table) cell(text string) string {
	return strings.NewReplacer(": \n", ": ", ":\n", ": ", "\n", "; ").Replace(t.once(text))
}

// below moves the etcd commands of a cell to printCommands, because a table has one line for each
// row.
func (t *table) below(text string) string {
	var prose []string
	for line := range strings.Lines(separate(text)) {
		line = strings.TrimSuffix(line, "\n")
		if !isCommand(line) {
			prose = append(prose, line)
			continue
		}
		if n := len(prose); n > 0 && strings.HasSuffix(prose[n-1], ":") {
			prose[n-1] = asRoot.ReplaceAllString(strings.TrimSuffix(prose[n-1], ":"), "") + ": see below"
		}
		if !slices.Contains(t.shown, line) {
			t.shown = append(t.shown, line)
		}
	}
	return strings.TrimPrefix(strings.Join(prose, " "), ": ")
}

// printCommands prints the commands that below removed from the cells.
func (t *table) printCommands() {
	if len(t.shown) == 0 {
		return
	}
	t.line("")
	t.line(`As etcd root (ignore "already exists"):`)
	for _, command := range t.shown {
		t.line("%s", "  "+command)
	}
}
