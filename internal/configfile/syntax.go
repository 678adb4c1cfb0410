package configfile

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// yamlLine finds the line in an error of the yaml package.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxFault returns the fault of a file that is not valid YAML. Its message is clear to readers
// who do not know the grammar of YAML.
func syntaxFault(name string, data []byte, err error) Fault {
	output := yamlLine.ReplaceAllString(err.Error(), "")
	line := faultyLine(data)
	if m := yamlLine.FindStringSubmatch(err.Error()); line == 0 && m != nil {
		line, _ = strconv.Atoi(m[1]) // 0 if there is no number
	}
	f := Fault{File: name, Line: max(1, line), Problem: "not valid YAML: " + output}
	if above := lineAbove(data, f.Line); above > 0 && bareWord.MatchString(text(data, above)) {
		f.Line, f.Problem = above, "not valid YAML: "+noColon
		return f
	}
	if why := explain(output, text(data, f.Line)); why != "" {
		f.Problem = "not valid YAML: " + why
	}
	return f
}

// bareWord matches a line that has only a word, such as a key without a colon.
var bareWord = regexp.MustCompile(`^\s*[A-Za-z]\w*\s*(#.*)?$`)

// noColon explains a key without a colon.
const noColon = "a key has no colon behind it; write key: value"

// lineAbove returns the last line above a line that is neither empty nor a comment; 0 if there is none.
func lineAbove(data []byte, line int) int {
	for line--; line > 0; line-- {
		if content := strings.TrimSpace(text(data, line)); content != "" && content[0] != '#' {
			return line
		}
	}
	return 0
}

// longestFile is the most lines of a file that are searched for a fault. The search parses the file
// once for each line.
const longestFile = 1000

// faultyLine returns the line that makes data invalid: the first line after the longest valid
// beginning. It returns 0 if the search would take too long. The yaml package may report the
// beginning of the section, the line before, or no line.
func faultyLine(data []byte) int {
	ends := lineEnds(data)
	if len(ends) > longestFile {
		return 0
	}
	for n := len(ends) - 1; n > 0; n-- {
		if _, err := documents(data[:ends[n-1]]); err == nil {
			return n + 1
		}
	}
	return 1
}

// lineEnds returns the offsets at which lines end.
func lineEnds(data []byte) []int {
	var ends []int
	for line := range bytes.Lines(data) {
		last := 0
		if n := len(ends); n > 0 {
			last = ends[n-1]
		}
		ends = append(ends, last+len(line))
	}
	return ends
}

// text returns a line of data, counted from 1.
func text(data []byte, line int) string {
	lines := strings.Split(string(data), "\n")
	return lines[min(line, len(lines))-1]
}

// explain explains an error of the yaml package about a line. It returns "" if the error is clear
// already.
func explain(output, line string) string {
	content := strings.TrimLeft(line, " \t")
	indent := line[:len(line)-len(content)]
	value := content
	if _, after, found := strings.Cut(content, ": "); found {
		value = strings.TrimLeft(after, " ")
	}
	value = strings.TrimLeft(strings.TrimPrefix(value, "- "), " ")
	const place = "this line does not fit to those above it: indent it as far as the keys beside it"
	switch {
	case strings.HasPrefix(output, "unknown anchor"), // the error repeats the anchor
		strings.Contains(output, "did not find expected alphabetic or numeric character"):
		return `a value that begins with * must stand in quotes, such as "*/pause"`
	case strings.Contains(indent, "\t"):
		return "the line begins with a tab; indent with blanks"
	case value != "" && strings.ContainsRune("*&@%`!", rune(value[0])):
		return "a value that begins with " + value[:1] + ` must stand in quotes, such as "*/pause"`
	case strings.HasPrefix(value, `"`) && strings.Contains(output, "unknown escape character"):
		return `in double quotes a \ has a meaning; use single quotes`
	case !closed(value) && strings.ContainsRune(`"'`, rune(value[0])):
		return "a quote is not closed, or something stands behind it"
	case !closed(value) && value[0] == '[':
		return "a list that begins with [ must end with ], with commas between"
	case !closed(value) && value[0] == '{':
		return "what begins with { must end with }, with commas between"
	case strings.HasPrefix(content, "-") && !strings.HasPrefix(content, "- ") && strings.Contains(output, "could not find expected ':'"):
		return "an entry of a list needs a blank behind its dash"
	case strings.Contains(output, "could not find expected ':'"):
		return noColon
	case strings.Contains(output, "mapping values are not allowed") && strings.Count(content, ": ") > 1:
		return `a value with ": " in it must stand in quotes`
	case strings.Contains(output, "mapping values are not allowed"), strings.Contains(output, "did not find expected key"), strings.Contains(output, "did not find expected '-' indicator"):
		return place
	}
	return ""
}

// closed reports whether what a value begins with is closed at its end: a quote or a bracket. A value that
// begins with neither is closed.
func closed(value string) bool {
	ends := map[byte]string{'"': `"`, '\'': `'`, '[': "]", '{': "}"}
	if value == "" || ends[value[0]] == "" {
		return true
	}
	text, _, _ := strings.Cut(value, " #")
	text = strings.TrimRight(text, " ")
	begin, end := value[:1], ends[value[0]]
	if begin == end {
		return strings.Count(text, begin)%2 == 0 && strings.HasSuffix(text, end)
	}
	return strings.Count(text, begin) == strings.Count(text, end) && strings.HasSuffix(text, end)
}
