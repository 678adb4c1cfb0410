package gc_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestPatternMatch(t *testing.T) {
	tests := []struct {
		name, pattern, ref string
		want               bool
	}{
		{"a short name means Docker Hub's library", "nginx", "docker.io/library/nginx:1.27", true},
		{"a name without a tag means every tag", "nginx", "docker.io/library/nginx:latest", true},
		{"a name without a tag means every digest", "nginx", "docker.io/library/nginx@" + someDigest, true},
		{"a name is not a prefix", "nginx", "docker.io/library/nginx-unit:1", false},
		{"a short name is no other registry's", "nginx", "quay.io/library/nginx:1.27", false},
		{"an image listed by its short name", "docker.io/library/nginx", "nginx:1.27", true},
		{"a tag narrows", "nginx:1.27", "docker.io/library/nginx:1.26", false},
		{"a tag that fits", "nginx:1.27", "docker.io/library/nginx:1.27", true},
		{"a wildcard in the tag", "nginx:1.*", "docker.io/library/nginx:1.27", true},
		{"a question mark is one character", "nginx:1.2?", "docker.io/library/nginx:1.27", true},
		{"a question mark is not two", "nginx:1.?", "docker.io/library/nginx:1.27", false},
		{"a user's repository on Docker Hub", "team/app", "docker.io/team/app:3", true},
		{"a whole registry", "registry.example.com/*", "registry.example.com/a/b/c:1", true},
		{"a registry with a port", "localhost:5000/*", "localhost:5000/app:1", true},
		{"a registry with a port and a tag", "localhost:5000/app:1", "localhost:5000/app:2", false},
		{"a registry is no other one", "registry.example.com/*", "registry.example.org/a:1", false},
		{"a dot is a dot", "registry.example.com/*", "registryXexample.com/a:1", false},
		{"a leading star crosses registries", "*/pause", "registry.k8s.io/pause:3.10", true},
		{"a leading star with a tag", "*:stable", "quay.io/org/tool:stable", true},
		{"a lone star is everything", "*", "quay.io/org/tool:stable", true},
		{"a star in the registry", "quay*/org/*", "quay.example.com/org/x:1", true},
		{"several stars", "*/o*g/*ol:*", "quay.io/org/tool:stable", true},
		{"several stars that do not fit", "*/o*g/*ol:*x", "quay.io/org/tool:stable", false},
		{"a name with a digest", "nginx@" + someDigest, "docker.io/library/nginx@" + someDigest, true},
		{"a tag beside a digest does not matter", "nginx:1@" + someDigest, "docker.io/library/nginx@" + someDigest, true},
		{"a digest of any repository", someDigest, "quay.io/org/tool@" + someDigest, true},
		{"a digest's beginning", someDigest[:20] + "*", "quay.io/org/tool@" + someDigest, true},
		{"another digest", "sha256:ff*", "quay.io/org/tool@" + someDigest, false},
		{"a digest does not match a tag", "sha256:*", "quay.io/org/tool:1", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := gc.ParsePattern(tt.pattern)
			if err != nil {
				t.Fatalf("ParsePattern(%q) = %v, want no error", tt.pattern, err)
			}
			img := runtime.Image{ID: "plain", Tags: []string{tt.ref}}
			if strings.Contains(tt.ref, "@") {
				img.Tags, img.Digests = nil, img.Tags
			}
			if got := p.Match(img); got != tt.want {
				t.Errorf("Pattern(%q).Match(%q) = %v, want %v", tt.pattern, tt.ref, got, tt.want)
			}
		})
	}
}

func TestPatternMatchesID(t *testing.T) {
	p, err := gc.ParsePattern(someDigest)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{someDigest, strings.TrimPrefix(someDigest, "sha256:")} {
		if !p.Match(runtime.Image{ID: id}) {
			t.Errorf("Pattern(%q).Match(image %s) = false, want true", p, id)
		}
	}
}

func TestParsePatternRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "empty",
		"nginx ":                 "spaces",
		"ng[ix]*":                "only * and ?",
		"registry.example.com/":  `write "registry.example.com/*"`,
		"registry.example.com":   `write "registry.example.com/*"`,
		"registry.example:5000":  "names only a registry",
		"https://quay.io/org/*":  "scheme",
		"/org/tool":              "slash",
		"nginx:":                 "empty tag",
		"nginx@":                 "empty tag or digest",
		"sha256:":                "empty tag or digest",
		"registry.io//double":    "not an image reference",
		"tab\tbed":               "control",
		"a{b,c}":                 "only * and ?",
		"!negated/is-not-a-rule": "only * and ?",
		"Nginx:1.*":              `write "nginx:1.*"`,
		"quay.io/Org/Tool:RC1":   `write "quay.io/org/tool:RC1"`,
		"*/Pause":                `write "*/pause"`,
		"nginx::1":               "two colons",
		"a/b:c:d":                "text after the tag",
		"quay.io/org:1/tool":     "text after the tag",
		"localhost:port/app":     "port that is not a number",
		"nginx:1.2+3":            `has '+'`,
		"nginx,redis":            `has ','`,
		"nginx:-alpine":          "starts with '-'",
		"-nginx":                 "starts with '-'",
		"quay.io/_x":             "starts with '_'",
		"a@b@c":                  "more than one @",
		"a@b":                    "in place of a digest",
		"nginx@sha256:0123":      `write "sha256:0123*"`,
		"sha256:xyz":             `has "x" in a digest`,
		"sha256:ABC*":            `has "A" in a digest`,
		"sha256:0123":            `write "sha256:0123*"`,
		someDigest + "0":         "65 digits",
		strings.TrimPrefix(someDigest, "sha256:"): `write "` + someDigest + `"`,
	} {
		_, err := gc.ParsePattern(text)
		checkError(t, "ParsePattern("+text+")", err, want)
	}
}

// Rejected patterns must never match. If replacing parts of a name by wildcards gives a pattern
// that would match, it must be accepted.
func TestNoRejectedPatternMatches(t *testing.T) {
	names := []string{
		"nginx", "nginx:1.27", "nginx:_x.Y-z", "team/app", "a__b/c---d/e.f_g:RC1", "localhost/app:1", "localhost:5000/app", "localhost:5000/a/b:V1",
		"registry.k8s.io/pause:3.10", "Registry.Example-1.COM:443/app/x:Latest", "10.0.0.1:5000/x:1", "quay.io/org/tool@" + someDigest,
		"quay.io/org/tool:1.2@" + someDigest, someDigest, "r.example/x@sha512:" + strings.Repeat("0f", 64),
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		name := names[random.IntN(len(names))]
		text := []byte(name)
		for range random.IntN(4) {
			from := random.IntN(len(text))
			if random.IntN(2) == 0 {
				text[from] = '?'
				continue
			}
			to := from + random.IntN(len(text)-from+1)
			text = slices.Concat(text[:from], []byte("*"), text[to:])
		}
		img := runtime.Image{ID: "x", Tags: []string{name}}
		if _, err := gc.ParsePattern(string(text)); err != nil && gc.MatchUnchecked(string(text), img) {
			t.Fatalf("ParsePattern(%q) = %v, want it accepted: it matches %s", text, err, name)
		}
	}
}

func TestParsePatternsNamesEveryFault(t *testing.T) {
	good, err := gc.ParsePatterns([]string{"nginx", "a b", "quay.io/*", ""})
	if len(good) != 2 || err == nil || !strings.Contains(err.Error(), `"a b"`) || !strings.Contains(err.Error(), `""`) {
		t.Errorf("ParsePatterns() = %v, %v, want two patterns and both faults", good, err)
	}
}

func TestNormalReference(t *testing.T) {
	for ref, want := range map[string]string{
		"nginx":                       "docker.io/library/nginx:latest",
		"nginx:1":                     "docker.io/library/nginx:1",
		"docker.io/nginx:1":           "docker.io/library/nginx:1",
		"index.docker.io/nginx:1":     "docker.io/library/nginx:1",
		"index.docker.io/a/b:1":       "docker.io/a/b:1",
		"a/b":                         "docker.io/a/b:latest",
		"localhost/app":               "localhost/app:latest",
		"localhost:5000/app":          "localhost:5000/app:latest",
		"registry.k8s.io/pause:3.10":  "registry.k8s.io/pause:3.10",
		"quay.io/a/b:1@" + someDigest: "quay.io/a/b@" + someDigest,
		someDigest:                    strings.TrimPrefix(someDigest, "sha256:"),
		strings.TrimPrefix(someDigest, "sha256:"): strings.TrimPrefix(someDigest, "sha256:"),
	} {
		if got := gc.NormalReference(ref); got != want {
			t.Errorf("NormalReference(%q) = %q, want %q", ref, got, want)
		}
	}
}

func FuzzPattern(f *testing.F) {
	f.Add("nginx:1.*", "docker.io/library/nginx:1.27")
	f.Add("*a*b*c*", "aaaaabbbbbccccc")
	f.Add("sha256:0*", someDigest)
	f.Fuzz(func(t *testing.T, text, ref string) {
		// Every accepted pattern matches the reference from which it was made.
		p, err := gc.ParsePattern(text)
		if err != nil {
			return
		}
		p.Match(runtime.Image{ID: ref, Tags: []string{ref}})
		if !strings.ContainsAny(text, "*?@") && !strings.HasPrefix(text, "sha256:") {
			if !p.Match(runtime.Image{ID: "x", Tags: []string{text}}) {
				t.Errorf("Pattern(%q) does not match itself", text)
			}
		}
	})
}
