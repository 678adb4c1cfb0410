package kubernetes

import (
	"log/slog"
	"regexp"
	"strings"

	"k8s.io/klog/v2"

	"hostler.io/hostler/internal/sanitize"
)

// A kubeconfig may hold a key, a token, a password, an exec plugin's environment, and users in URLs.
// No error and no line of the log repeats one: who may read these may not read the file.

// repeated is what a parser's error repeats of a file.
var repeated = regexp.MustCompile("'[^']*'|\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")

// unread is how client-go begins what it could not read of an exec plugin's output.
const unread = "decoding stdout: "

// shown is a text of client-go without the users and passwords of URLs, and what a plugin printed.
func shown(text string) string {
	text = sanitize.Userinfo(text)
	if before, after, found := strings.Cut(text, unread); found {
		return before + unread + repeated.ReplaceAllString(after, "…")
	}
	return text
}

// concealed is an error whose text is not to be shown as it is.
type concealed struct{ cause error }

// conceal returns the error as it may be shown.
func conceal(err error) error { return &concealed{err} }

// Error implements error.
func (c *concealed) Error() string { return shown(c.cause.Error()) }

// Unwrap returns the cause.
func (c *concealed) Unwrap() error { return c.cause }

// LogTo has client-go log there. It can log in one place only for the whole process.
func LogTo(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(sanitize.Handler{Handler: log.Handler(), Conceal: shown}))
}
