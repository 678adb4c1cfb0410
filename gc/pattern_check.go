package gc

import (
	"errors"
	"fmt"
	"strings"
)

// checkPattern returns why a pattern is invalid or can never match. Such a pattern would protect
// nothing, and users would notice only after the removal of the image. The grammar is that of
// github.com/distribution/reference, which runtimes use. If in doubt, the pattern is accepted.
func checkPattern(text string) error {
	switch {
	case text == "":
		return errors.New("is empty")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return errors.New("contains spaces or control characters")
	case strings.ContainsAny(text, "[]{}\\!"):
		return errors.New("only * and ? are wildcards")
	case strings.HasSuffix(text, "/"):
		return fmt.Errorf("ends in a slash; write %q for everything below it", text+"*")
	case strings.HasPrefix(text, "/"), strings.Contains(text, "//"), strings.Contains(text, "://"):
		return errors.New("is not an image reference; remove the scheme and the leading slash")
	case strings.HasSuffix(text, ":"), strings.HasSuffix(text, "@"):
		return errors.New("has an empty tag or digest")
	case isID(text):
		return fmt.Errorf("is an image ID; write %q", "sha256:"+text)
	}
	if digits, found := strings.CutPrefix(text, "sha256:"); found {
		return checkDigits(digits)
	}
	repository, _ := splitReference(text)
	if !strings.Contains(repository, "/") && strings.Contains(repository, ".") && !strings.ContainsAny(repository, "*?") {
		return fmt.Errorf("names only a registry; write %q for all of its images", text+"/*")
	}
	name, digest, hasDigest := strings.Cut(text, "@")
	if err := checkName(name); err != nil || !hasDigest {
		return err
	}
	return checkDigest(digest)
}

const digestExample = "quay.io/org/tool@sha256:0123*"

func checkDigest(digest string) error {
	if digits, found := strings.CutPrefix(digest, "sha256:"); found {
		return checkDigits(digits)
	}
	switch {
	case strings.Contains(digest, "@"):
		return errors.New("has more than one @; write it like " + digestExample)
	case !strings.ContainsAny(digest, ":*?"):
		return fmt.Errorf("has %q in place of a digest; write it like %s", digest, digestExample)
	}
	return nil
}

// checkDigits checks the part after "sha256:".
func checkDigits(digits string) error {
	if i := strings.IndexFunc(digits, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef*?", r) }); i >= 0 {
		return fmt.Errorf("has %.1q in a digest, which consists of 0-9 and a-f; write it like sha256:0123*", digits[i:])
	}
	const all = 64
	switch n := len(strings.ReplaceAll(digits, "*", "")); {
	case n > all:
		return fmt.Errorf("has %d digits, but a digest has %d", n, all)
	case n < all && !strings.Contains(digits, "*"):
		return fmt.Errorf("has %d digits, but a digest has %d; write %q for all with this prefix", n, all, "sha256:"+digits+"*")
	}
	return nil
}

// part is the part of a name at the current position.
type part int

const (
	somewhere part = iota // after a wildcard, which may match across parts
	inRegistry
	inPort
	inPath // the repository after the registry
	inTag
)

// checkName checks a pattern up to its digest. After a wildcard the part is unknown, so fewer rules
// apply.
func checkName(name string) error {
	if strings.Contains(name, "::") {
		return errors.New("has two colons in a row; write it like nginx:1.*")
	}
	repository, tag := splitReference(name)
	at, begins := inRegistry, true // begins: at the start of a component
	for _, r := range complete(repository) + tag {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		digit := r >= '0' && r <= '9'
		switch {
		case r == '*', r == '?':
			at = somewhere
		case !letter && !digit && !strings.ContainsRune("._-/:", r):
			return fmt.Errorf("has %q, which an image name cannot contain; write ? for any one character", r)
		case begins && strings.ContainsRune(".-_", r) && (at != inTag || r != '_') && at != somewhere:
			return fmt.Errorf("has a part that starts with %q, which an image name cannot have; write * before it to match more", r)
		case r == '/' && at == inTag, r == ':' && (at == inPort || at == inTag):
			return errors.New("has text after the tag; write it like nginx:1.* or localhost:5000/app:1.*")
		case r == '/':
			at = inPath
		case r == ':' && at == inRegistry:
			at = inPort
		case r == ':' && at == inPath:
			at = inTag
		case at == inPort && !digit:
			return errors.New("has a port that is not a number; write it like localhost:5000/app")
		case at == inPath && letter && r <= 'Z':
			return fmt.Errorf("has upper-case letters in the repository; write %q", strings.ToLower(repository)+tag)
		}
		begins = r == '/' || r == ':'
	}
	return nil
}
