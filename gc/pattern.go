package gc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/runtime"
)

// Pattern matches names of images to keep. `*` matches any text, including slashes; `?` matches one
// character. Other characters match themselves. A pattern is completed like a reference: "nginx"
// means "docker.io/library/nginx", and "team/app" means "docker.io/team/app". Without a tag or
// digest it matches all of them. A pattern that begins with `*` is not completed. "sha256:..."
// matches a digest or an image ID, in any repository.
type Pattern struct {
	text   string
	glob   glob
	digest bool // glob is matched only against digests and IDs
	bare   bool // glob has neither tag nor digest, so it matches the repository
}

// ParsePattern compiles a pattern, or returns why it is invalid.
func ParsePattern(text string) (Pattern, error) {
	if err := checkPattern(text); err != nil {
		return Pattern{}, fmt.Errorf("keep pattern %q: %w", text, err)
	}
	return compile(text), nil
}

func compile(text string) Pattern {
	p := Pattern{text: text}
	if strings.HasPrefix(text, "sha256:") {
		p.glob, p.digest = newGlob(strings.TrimPrefix(text, "sha256:")), true
		return p
	}
	repository, suffix := splitReference(text)
	p.bare = suffix == ""
	p.glob = newGlob(complete(repository) + suffix)
	return p
}

// complete returns the full repository of a pattern, unless a star matches its registry.
func complete(repository string) string {
	first, _, slash := strings.Cut(repository, "/")
	if strings.HasPrefix(repository, "*") || slash && strings.Contains(first, "*") {
		return repository
	}
	return fullRepository(repository)
}

// ParsePatterns compiles patterns. The error names every invalid one.
func ParsePatterns(texts []string) ([]Pattern, error) {
	patterns := make([]Pattern, 0, len(texts))
	var errs []error
	for _, text := range texts {
		p, err := ParsePattern(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		patterns = append(patterns, p)
	}
	return patterns, errors.Join(errs...)
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Match reports whether the pattern matches one of the image's names or its ID.
func (p Pattern) Match(img runtime.Image) bool {
	return slices.ContainsFunc(References(nil, &img), p.matchNormal)
}

// matchNormal matches a reference in normal form.
func (p Pattern) matchNormal(ref string) bool {
	if p.digest {
		if at := strings.LastIndex(ref, "@sha256:"); at >= 0 {
			ref = ref[at+len("@sha256:"):]
		}
		return isID(ref) && p.glob.match(ref)
	}
	if p.glob.match(ref) {
		return true
	}
	if !p.bare || !p.glob.mayMatch(ref) {
		return false
	}
	repository, _ := splitReference(ref)
	return p.glob.match(repository)
}

// glob is a pattern, split at its stars.
type glob struct {
	head     string   // the text before the first star, a prefix of every match
	parts    []string // texts after each star, in order; nil if there is no star
	question bool     // the pattern contains question marks
}

func newGlob(pattern string) glob {
	parts := strings.Split(pattern, "*")
	return glob{head: parts[0], parts: parts[1:], question: strings.Contains(pattern, "?")}
}

// mayMatch is a fast check that rejects most names that do not match.
func (g glob) mayMatch(s string) bool { return g.question || strings.HasPrefix(s, g.head) }

// match finds the first position of each part, and the last part at the end. The first position
// never prevents a later part from matching.
func (g glob) match(s string) bool {
	if !g.mayMatch(s) || len(s) < len(g.head) || !equal(g.head, s[:len(g.head)]) {
		return false
	}
	s = s[len(g.head):]
	if len(g.parts) == 0 {
		return s == ""
	}
	last := len(g.parts) - 1
	for _, part := range g.parts[:last] {
		at := g.index(s, part)
		if at < 0 {
			return false
		}
		s = s[at+len(part):]
	}
	tail := g.parts[last]
	return len(s) >= len(tail) && equal(tail, s[len(s)-len(tail):])
}

func (g glob) index(s, part string) int {
	if !g.question {
		return strings.Index(s, part)
	}
	for at := 0; at+len(part) <= len(s); at++ {
		if equal(part, s[at:at+len(part)]) {
			return at
		}
	}
	return -1
}

// equal compares strings of the same length. A question mark equals any character.
func equal(pattern, s string) bool {
	if pattern == s {
		return true
	}
	for i := range len(pattern) {
		if pattern[i] != s[i] && pattern[i] != '?' {
			return false
		}
	}
	return true
}
