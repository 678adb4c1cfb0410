package kubernetes

import (
	"regexp"
	"strings"

	"hostler.io/hostler/internal/sanitize"
)

// A kubeconfig may hold a key, a token, a password, an exec plugin's environment, and users in URLs.
// No error repeats one: who may read status and log may not read the file.

// repeated is what a parser's error repeats of a file.
var repeated = regexp.MustCompile("'[^']*'|\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")

// unread is how client-go begins what it could not read of an exec plugin's output.
const unread = "decoding stdout: "

// concealed is an error without the users and passwords of URLs, and what a plugin printed.
type concealed struct{ cause error }

// conceal returns the error as it may be shown.
func conceal(err error) error { return &concealed{err} }

// Error implements error.
func (c *concealed) Error() string {
	text := sanitize.Userinfo(c.cause.Error())
	if before, after, found := strings.Cut(text, unread); found {
		return before + unread + repeated.ReplaceAllString(after, "…")
	}
	return text
}

// Unwrap returns the cause, whose text is not to be shown.
func (c *concealed) Unwrap() error { return c.cause }
