package sanitize

import "regexp"

// A URL may have a user and a password before its host (RFC 3986, section 3.2.1). A quoted URL may
// contain any character, because the text may be an error about an invalid URL.
var (
	quotedUser = regexp.MustCompile(`"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^"\\]|\\.)*@`)
	bareUser   = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"]*@`)
)

// Userinfo replaces the user and the password in each URL of a text by "…".
func Userinfo(text string) string {
	text = quotedUser.ReplaceAllString(text, `"$1…@`)
	return bareUser.ReplaceAllString(text, "$1…@")
}
