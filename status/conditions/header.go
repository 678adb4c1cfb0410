package conditions

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/status"
)

// header is the header of a check. Missing keys are empty.
type header struct {
	kind, reason, user string
	interval, timeout  time.Duration
	temporary          bool
}

const (
	// headerBytes bounds how much of a file is read for its header.
	headerBytes = 16 << 10
	// headerMark begins a header, in a separate comment line.
	headerMark = "hostler:"
)

// reasons matches valid reasons of a condition (metav1.Condition) and of an Event.
var reasons = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_]{0,126}[A-Za-z0-9])?$`)

// yamlLine finds the line in an error of the yaml package.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// keys returns the valid keys of a header.
func keys() []string { return []string{"type", "reason", "interval", "timeout", "user", "temporary"} }

// parser parses a header, and collects its faults.
type parser struct {
	path   string
	before int // lines of the file before the header
	header header
	faults []Fault
}

func (p *parser) fault(line int, fix, format string, args ...any) {
	p.faults = append(p.faults, Fault{Path: p.path, Line: line, Problem: fmt.Sprintf(format, args...), Fix: fix})
}

// parseScript parses the header in the comments at the beginning of a script: a line "# hostler:",
// and below it the indented keys. found is false if there is no header.
func parseScript(path string, text []byte) (h header, found bool, faults []Fault) {
	p := parser{path: path}
	var block strings.Builder
	inside, indent, number := false, 0, 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			break // the rest is the script's code
		}
		comment := strings.TrimLeft(line, "#")
		content := strings.TrimSpace(comment)
		blanks := len(comment) - len(strings.TrimLeft(comment, " \t"))
		switch {
		case inside && content != "" && blanks > indent:
			block.WriteString(comment + "\n")
			continue
		case inside:
			inside = false
			if key, _, colon := strings.Cut(content, ":"); block.Len() == 0 && colon && slices.Contains(keys(), key) {
				p.fault(number, "indent it, and the keys below it, more than `# "+headerMark+"`", "%s: not indented, so it is not a key of the header", key)
			}
		}
		switch {
		case content == headerMark && found:
			p.fault(number, "keep one of them", "second header")
		case content == headerMark:
			found, inside, indent, p.before = true, true, blanks, number
		case strings.HasPrefix(strings.ToLower(content), headerMark):
			p.fault(number, "write `# "+headerMark+"` on a line of its own, and the keys in the comments below it, indented", "%q does not start a header", content)
		}
	}
	if found {
		p.parse([]byte(block.String()))
	}
	return p.header, found, p.faults
}

// parseFile parses the header of a binary, in NAME.yaml.
func parseFile(path string, text []byte) (header, []Fault) {
	p := parser{path: path}
	p.parse(text)
	return p.header, p.faults
}

const writeYAML = "write it as `key: value`, one on each line"

// parse parses the keys.
func (p *parser) parse(text []byte) {
	// YAML has more line breaks than editors count.
	text = []byte(strings.NewReplacer("\r\n", "\n", "\r", " ", "\u0085", " ", "\u2028", " ", "\u2029", " ").Replace(string(text)))
	var doc, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return // no keys
	}
	if err != nil {
		line := 1
		if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
			line, _ = strconv.Atoi(m[1]) // 0 if there is no number
		}
		lines := bytes.Count(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) + 1
		p.fault(p.before+max(1, min(line, lines)), writeYAML, "not valid YAML: %s", yamlLine.ReplaceAllString(err.Error(), ""))
		return
	}
	if !errors.Is(decoder.Decode(&more), io.EOF) {
		p.fault(p.before+doc.Line, writeYAML, "more than one YAML document")
		return
	}
	root := doc.Content[0]
	if root.Tag == "!!null" {
		return
	}
	if root.Kind != yaml.MappingNode {
		p.fault(p.before+root.Line, writeYAML, "the header is not a map of keys")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		line := p.before + key.Line
		switch {
		case seen[key.Value]:
			p.fault(line, "keep one of them", "%s: set twice", key.Value)
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null" || value.Value == "":
			p.fault(line, "write a value after it, or remove the key", "%s: must be a single value", key.Value)
		default:
			if fix, err := p.set(key.Value, value); err != nil {
				p.fault(line, fix, "%s: %v", key.Value, err)
			}
		}
		seen[key.Value] = true
	}
}

// set sets one key. It returns an error with a hint.
func (p *parser) set(key string, value *yaml.Node) (fix string, err error) {
	h := &p.header
	switch key {
	case "type":
		h.kind = value.Value
		return "write a qualified name such as hostler.io/DiskFailing", status.CheckCustomType(h.kind)
	case "reason":
		h.reason = value.Value
		if !reasons.MatchString(h.reason) {
			return "write one word, such as DiskFailing", fmt.Errorf("%q is not one word of letters and digits", h.reason)
		}
	case "interval":
		h.interval, err = duration(value.Value, MinInterval, MaxInterval)
		return "write a duration such as 30s or 5m", err
	case "timeout":
		h.timeout, err = duration(value.Value, MinTimeout, MaxTimeout)
		return "write a duration such as 10s", err
	case "user":
		h.user = value.Value
	case "temporary":
		if h.temporary, err = strconv.ParseBool(value.Value); err != nil || value.Tag != "!!bool" {
			return "write true or false", fmt.Errorf("%q is neither true nor false", value.Value)
		}
	default:
		return "remove or correct it", errors.New("unknown key; known here: " + strings.Join(keys(), ", "))
	}
	return "", nil
}

// duration parses a duration, which must be within bounds.
func duration(text string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration with a unit", text)
	}
	if problem := outside(d, least, most); problem != "" {
		return 0, errors.New(problem)
	}
	return d, nil
}

// typeOf returns the default type of a check: hostler.io/DiskFailing for disk-failing.sh.
func typeOf(name string) string {
	name, _, _ = strings.Cut(name, ".")
	var kind strings.Builder
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '-' || r == '_' }) {
		kind.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return "hostler.io/" + kind.String()
}
