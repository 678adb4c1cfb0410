package sanitize

import "regexp"

// A URL may have a user and a password before its host (RFC 3986, section 3.2.1). One that stands in
// quotes may hold anything, for what quotes it may be the report that it is invalid.
var (
	quotedUser = regexp.MustCompile(`"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^"\\]|\\.)*@`)
	bareUser   = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"]*@`)
)

// Userinfo returns the text with … instead of the user and the password of each URL in it.
func Userinfo(text string) string {
	text = quotedUser.ReplaceAllString(text, `"$1…@`)
	return bareUser.ReplaceAllString(text, "$1…@")
}
