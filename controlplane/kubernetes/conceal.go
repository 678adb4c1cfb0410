package kubernetes

import (
	"log/slog"
	"regexp"
	"strings"

	"k8s.io/klog/v2"

	"hostler.io/hostler/internal/sanitize"
)

// A kubeconfig can contain a key, a token, a password, the environment of an exec plugin, and users
// in URLs. No error and no log line repeats one of them, because readers of these may not be allowed
// to read the file.

// repeated matches content of the file that a parser repeats in its error.
var repeated = regexp.MustCompile("'[^']*'|\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")

// unread is the beginning of client-go's error about an exec plugin's output.
const unread = "decoding stdout: "

// shown returns a text of client-go without users and passwords of URLs, and without output of
// plugins.
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
