package config_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"hostler.io/hostler/agent/config"
)

// key is a key without keys below it, with a function that returns a document with a value for it.
type key struct {
	path     string
	field    reflect.StructField
	document func(value string) string
}

// keysOf returns the keys of a struct below a path. around returns a document that contains inner.
func keysOf(t reflect.Type, path string, around func(inner string) string) (keys []key) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		path := strings.TrimPrefix(path+"."+name, ".")
		within := func(inner string) string { return around(fmt.Sprintf("{%s: %s}", name, inner)) }
		switch elem := f.Type; {
		case elem == reflect.TypeFor[config.Runtimes]():
			keys = append(keys, keysOf(reflect.TypeFor[config.Runtime](), path, func(inner string) string { return within("[" + inner + "]") })...)
			keys = append(keys, key{path, f, within})
		case elem.Kind() == reflect.Struct:
			keys = append(keys, keysOf(elem, path, within)...)
		case elem.Kind() == reflect.Slice && elem.Elem().Kind() == reflect.Struct:
			keys = append(keys, keysOf(elem.Elem(), path, func(inner string) string { return within("[" + inner + "]") })...)
		case elem.Kind() == reflect.Map:
			keys = append(keys, key{path, f, func(value string) string { return within("{example.org/a: " + value + "}") }})
		default:
			keys = append(keys, key{path, f, within})
		}
	}
	return keys
}

func allKeys(t *testing.T) []key {
	t.Helper()
	keys := keysOf(reflect.TypeFor[config.Config](), "", func(inner string) string { return inner + "\n" })
	if len(keys) < 90 {
		t.Fatalf("the configuration has %d keys, want more: what is walked?", len(keys))
	}
	return keys
}

// sounds matches names of keys that may hold secrets.
var sounds = regexp.MustCompile(`(?i)pass|secret|token|key|credential|kubeconfig|auth|cookie|pem|private|header|env$|environment`)

// The configuration is shown to group hostler and over the network, so every new key needs a
// decision.
func TestTheConfigurationHoldsNoSecret(t *testing.T) {
	var files int
	for _, k := range allKeys(t) {
		secret := k.field.Tag.Get("secret")
		switch {
		case secret == "file":
			files++
			if shape := k.field.Tag.Get("shape"); shape != "path" && shape != "optionalPath" {
				t.Errorf("%s names a file that holds a secret and is of shape %q, want a path", k.path, shape)
			}
		case secret != "" && secret != "no":
			t.Errorf(`%s has the tag secret:%q, want "file" or "no"`, k.path, secret)
		case secret == "" && sounds.MatchString(k.path):
			t.Errorf(`%s sounds like a secret: have it name a file, with the tags shape:"optionalPath" secret:"file", or give it secret:"no" if whoever may read status may read it`, k.path)
		}
	}
	if files < 5 {
		t.Errorf("%d keys name files that hold secrets, want the kubeconfigs, keys and the password at least", files)
	}
}

// A user may write a secret instead of its file, or a password in a URL.
func TestNothingSecretIsShownWhateverKeyItIsWrittenTo(t *testing.T) {
	const secret = "hunter2"
	values := []string{
		"https://user:hunter2@host.example:1/x", `"https://user:a b\"hunter2@host.example"`, "https://hunter2@host.example",
	}
	pasted := []string{secret, "'hunter2: x'", "[hunter2]", "*hunter2", "!hunter2 x", `"-----BEGIN\nhunter2"`, "|\n  -----BEGIN PRIVATE KEY-----\n  hunter2\n"}
	for _, k := range allKeys(t) {
		tried := values
		if k.field.Tag.Get("secret") == "file" {
			tried = append(pasted, tried...)
		}
		for _, value := range tried {
			text := k.document(value)
			if strings.HasPrefix(value, "|") { // flow style has no block scalars
				text = block(k.path, value)
			}
			// Half of the faults are about combinations of keys.
			for _, more := range []string{"", "controlPlane: {type: etcd}\n", "controlPlane: {type: kubernetes}\n"} {
				if more != "" && !strings.HasPrefix(k.path, "controlPlane.") {
					continue
				}
				c, err := config.Parse("f.yaml", merged(text, more))
				if err != nil {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("Parse(%s) = %v, want it not to repeat %s", text, err, secret)
					}
					continue
				}
				shown, err := c.Shown()
				if err != nil || strings.Contains(string(shown), secret) {
					t.Errorf("Shown() of %s = %v,\n%s, want no %s", text, err, shown, secret)
				}
			}
		}
	}
}

// block returns a document in YAML's block style with this value at a path.
func block(path, value string) string {
	var b strings.Builder
	names := strings.Split(path, ".")
	for i, name := range names {
		b.WriteString(strings.Repeat("  ", i) + name + ":")
		if i < len(names)-1 {
			b.WriteString("\n")
		}
	}
	return b.String() + " " + strings.ReplaceAll(value, "\n", "\n"+strings.Repeat("  ", len(names))) + "\n"
}

// merged returns a document of the control plane with its type.
func merged(text, more string) []byte {
	if more == "" || !strings.HasPrefix(text, "{controlPlane: {") {
		return []byte(text)
	}
	kind := strings.TrimSuffix(strings.TrimPrefix(more, "controlPlane: {"), "}\n")
	return []byte(strings.Replace(text, "{controlPlane: {", "{controlPlane: {"+kind+", ", 1))
}

// An unknown key, and an invalid value.
func TestNothingSecretIsShownOfWhatIsNoConfiguration(t *testing.T) {
	for _, text := range []string{
		"controlPlane: {etcd: {password: hunter2}}\n",
		"controlPlane:\n  etcd:\n    password:hunter2\n",
		"controlPlane:\n  kubernetes:\n    token: hunter2: x\n",
		"controlPlane:\n  etcd: {passwordFile: *hunter2}\n",
		"controlPlane:\n  etcd:\n    passwordFile: [*hunter2]\n",
		"controlPlane:\n  etcd:\n    passwordFile: %hunter2\n",
		"controlPlane:\n  etcd:\n    passwordFile: !!int hunter2\n",
		"controlPlane:\n  etcd:\n    passwordFile: \"hunter2\\q\"\n",
		"controlPlane: {type: etcd, etcd: {endpoints: ['https://e?token=hunter2']}}\n",
		"controlPlane: {type: etcd, etcd: {endpoints: ['user:hunter2@e:2379', 'user:hunter2@e:2379']}}\n",
		"controlPlane: {type: etcd, etcd: {endpoints: ['https://user:1#hunter2@e', 'https://user:1#hunter2@e']}}\n",
		"imageGC: {keep: ['docker://user:hunter2@registry.example/app']}\n",
		"runtimes: tcp://user:hunter2@127.0.0.1:2376\n",
		"runtimes: [tcp://user:hunter2@127.0.0.1:2376]\n",
	} {
		if _, err := config.Parse("f.yaml", []byte(text)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("Parse(%s) = %v, want a fault that does not repeat hunter2", text, err)
		}
	}
}
