package engine

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"

	"hostler.io/hostler/internal/sanitize"
)

// Elements of lists, and events, contain the labels of an image, whose size its author decides. One
// such container must not keep hostler from seeing the others.
const (
	// maxStringBytes bounds a string in a response. A longer one is cut.
	maxStringBytes = 1 << 20
	// maxWantedBytes bounds each member of an element. Further entries of its maps and lists are
	// dropped.
	maxWantedBytes = 2 << 20
	// maxMemberBytes does so in lists, except for members in wanted. The author of an image chooses
	// how many ports and volumes it has.
	maxMemberBytes = 32 << 10
	// maxUncleanedBytes bounds an element that is passed on unchanged. A larger one goes through
	// sanitize.Clean, which prefers the labels that hostler needs.
	maxUncleanedBytes = 16 << 10
)

// wanted are members that lists need: labels are chosen by importance, and only operators add names.
var wanted = []string{`"Labels":`, `"HostConfig":`, `"Names":`, `"RepoTags":`, `"RepoDigests":`}

// imageMount marks a mounted image in a list of mounts. Only operators mount images, and no mounted image may be
// removed.
var imageMount = []byte(`"Type":"image"`)

// elements bounds each element of a JSON list, or of a sequence of JSON objects, while it is read.
type elements struct {
	io.ReadCloser
	chunk []byte // read buffer
	out   []byte // result that Read has not returned yet
	err   error  // returned by Read after out

	element       []byte
	member        member
	started, list bool
	between       int  // bytes since the last element
	depth         int  // of nested objects and arrays
	quoted, cut   bool // in a string; its escape sequence is beyond maxStringBytes
	length        int  // of the current string
	escape        int  // remaining bytes of the escape sequence
	skip          int  // depth of the object or array whose further entries are dropped, or 0
	most          int  // length of an inspected object beyond which entries of its current list are dropped, or 0
}

// member is the current member of an element.
type member struct {
	until  int  // length of the element beyond which entries of the member are dropped
	mounts bool // mounted images are kept beyond that
	entry  int  // of mounts: where the current entry begins
}

// Read implements io.Reader.
func (e *elements) Read(p []byte) (int, error) {
	if e.chunk == nil {
		e.chunk = make([]byte, 32<<10)
	}
	for len(e.out) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		var n int
		n, e.err = e.ReadCloser.Read(e.chunk)
		if err := e.takeAll(e.chunk[:n]); err != nil {
			e.err = err
		}
	}
	n := copy(p, e.out)
	e.out = e.out[n:]
	return n, nil
}

// takeAll parses the next bytes of the response.
func (e *elements) takeAll(text []byte) error {
	for len(text) > 0 {
		if n := e.plain(text); n > 0 {
			text = text[n:]
			continue
		}
		if err := e.take(text[0]); err != nil {
			return err
		}
		text = text[1:]
	}
	return nil
}

// plain consumes the part of a string up to the next escape sequence or the end, and returns its
// length.
func (e *elements) plain(text []byte) int {
	if !e.quoted || e.escape > 0 {
		return 0
	}
	for _, end := range []byte{'"', '\\'} {
		if i := bytes.IndexByte(text, end); i >= 0 {
			text = text[:i]
		}
	}
	kept := text[:min(len(text), max(0, maxStringBytes-e.length))]
	if e.skip == 0 {
		e.element = append(e.element, kept...)
	}
	e.length += len(text)
	return len(text)
}

// take parses the next byte of the response.
func (e *elements) take(c byte) error {
	if e.quoted {
		e.text(c)
	} else if e.outside(c) {
		e.out = append(e.out, c)
		if e.between++; e.between > MaxAnswerBytes {
			return errTooLarge
		}
		return nil
	} else {
		e.structure(c)
	}
	if e.depth == 0 && !e.quoted { // an element of a sequence has ended
		e.pass()
	}
	if len(e.element) > MaxAnswerBytes {
		return errTooLarge
	}
	return nil
}

// outside reports whether the next byte, which is not in a string, is outside all elements.
func (e *elements) outside(c byte) bool {
	switch {
	case c == '[' && !e.started:
		e.started, e.list, e.depth = true, true, 1
		return true
	case e.list && e.depth == 1 && (c == ',' || c == ']'):
		e.pass()
		if c == ']' {
			e.list, e.depth = false, 0
		}
		return true
	}
	return e.depth == 0 && c != '{' && c != '[' && c != '"'
}

// structure parses the next byte of an element, if it is not in a string.
func (e *elements) structure(c byte) {
	// Depth of the members that are bounded each: those of an element of a list, or of a member of an inspected object,
	// such as Config, whose Env must not end its Labels.
	const nested = 2
	e.started = true
	switch c {
	case '"':
		e.quoted, e.length = true, 0
	case '{', '[':
		e.depth++
		if e.depth == nested {
			e.most = 0
			if c == '[' && !e.list { // such as the mounts of an inspected container
				e.most = len(e.element) + maxWantedBytes
			}
		}
		if e.depth == nested+1 {
			e.member = member{until: len(e.element) + maxMemberBytes, mounts: bytes.HasSuffix(e.element, []byte(`"Mounts":`))}
			if !e.list || slices.ContainsFunc(wanted, func(name string) bool { return bytes.HasSuffix(e.element, []byte(name)) }) {
				e.member.until = len(e.element) + maxWantedBytes
			}
		}
	case '}', ']':
		if c == ']' && e.depth == nested+1 {
			e.dropMount()
		}
		if e.depth--; e.depth < e.skip {
			e.skip = 0
		}
	case ',':
		switch {
		case e.member.mounts && e.depth == nested+1:
			e.dropMount()
			e.member.entry = len(e.element)
		case e.skip > 0:
		case e.depth > nested && !e.member.mounts && len(e.element) > e.member.until,
			e.depth == nested && e.most > 0 && len(e.element) > e.most:
			e.skip = e.depth
		}
	}
	e.keep(c)
}

// dropMount removes the current mount of a long list, unless it is the first one or an image. Docker lists objects,
// Podman texts.
func (e *elements) dropMount() {
	if m := e.member; m.mounts && m.entry > 0 && len(e.element) > m.until && !bytes.Contains(e.element[m.entry:], imageMount) {
		e.element = e.element[:m.entry]
	}
}

// text parses the next byte of a string.
func (e *elements) text(c byte) {
	switch {
	case e.escape == 0 && c == '"':
		e.quoted = false
		e.keep(c)
		return
	case e.escape == 0: // a backslash
		e.cut, e.escape = e.length >= maxStringBytes, 1
	case c == 'u': // four digits follow
		e.escape = 4
	default:
		e.escape--
	}
	if e.length++; !e.cut {
		e.keep(c)
	}
}

func (e *elements) keep(c byte) {
	if e.skip == 0 {
		e.element = append(e.element, c)
	}
}

// pass appends the finished element to the result.
func (e *elements) pass() {
	e.between = 0
	if len(e.element) > maxUncleanedBytes {
		e.out = append(e.out, cleaned(e.element)...)
		e.element = nil // frees the memory of a large element
		return
	}
	e.out = append(e.out, e.element...)
	e.element = e.element[:0]
}

// cleaned returns a JSON value with bounded strings and labels. It returns invalid JSON unchanged.
func cleaned(element []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(element))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return element
	}
	text, err := json.Marshal(sanitize.Clean(withLabels(value)))
	if err != nil {
		return element
	}
	return text
}

// withLabels converts maps that contain only strings to map[string]string, which sanitize bounds as
// labels.
func withLabels(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = withLabels(v[i])
		}
	case map[string]any:
		labels := make(map[string]string, len(v))
		for key, inner := range v {
			if text, ok := inner.(string); ok {
				labels[key] = text
				continue
			}
			v[key] = withLabels(inner)
		}
		if len(labels) == len(v) {
			return labels
		}
	}
	return value
}
