package sanitize_test

import (
	"testing"

	"hostler.io/hostler/internal/sanitize"
)

func TestUserinfoIsRemovedFromURLs(t *testing.T) {
	for in, want := range map[string]string{
		"https://root:secret@host:6443/x":             "https://…@host:6443/x",
		"https://token@host":                          "https://…@host",
		"HTTP://u:se@cr@et@host":                      "HTTP://…@host",
		"socks5h://u:p/a?s#s@proxy: refused":          "socks5h://…@proxy: refused",
		`invalid proxy "http://u:a b\"c@proxy": no`:   `invalid proxy "http://…@proxy": no`,
		`parse "http://u:a b@proxy": invalid, "a@b"`:  `parse "http://…@proxy": invalid, "a@b"`,
		"a: http://u:p@one/ and b: http://u:p@two/":   "a: http://…@one/ and b: http://…@two/",
		`{"proxy":"http://u:p@host","mail":"a@b"}`:    `{"proxy":"http://…@host","mail":"a@b"}`,
		"https://host:6443/x":                         "https://host:6443/x",
		`https://host, ask "ops@example.org"`:         `https://host, ask "ops@example.org"`,
		"registry.example/app@sha256:0123":            "registry.example/app@sha256:0123",
		"mail ops@example.org about https://host/a b": "mail ops@example.org about https://host/a b",
	} {
		if got := sanitize.Userinfo(in); got != want {
			t.Errorf("Userinfo(%s) = %s, want %s", in, got, want)
		}
	}
}
