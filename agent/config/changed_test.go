package config_test

import (
	"reflect"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
)

func TestChangedNamesKeys(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		want          []string
	}{
		"nothing":                              {"", "", nil},
		"a default written out":                {"", "imageGC: {highThresholdPercent: 85, keep: []}\nnode: {labels: {}}\n", nil},
		"a number":                             {"", "imageGC: {highThresholdPercent: 90}\n", []string{"imageGC.highThresholdPercent"}},
		"a duration in other words":            {"lease: {duration: 60s}\n", "lease: {duration: 1m}\n", nil},
		"a key of a map":                       {"node: {labels: {a: b}}\n", "node: {labels: {a: c}}\n", []string{"node.labels"}},
		"the order of a map":                   {"node: {labels: {a: b, c: d}}\n", "node: {labels: {c: d, a: b}}\n", nil},
		"the order of a list":                  {"imageGC: {keep: [a, b]}\n", "imageGC: {keep: [b, a]}\n", []string{"imageGC.keep"}},
		"two values that read like one":        {"node: {annotations: {a: x, b: y}}\n", "node: {annotations: {a: \"x b:y\"}}\n", []string{"node.annotations"}},
		"a section below a section":            {"", "node: {reserved: {cpu: 500m}}\n", []string{"node.reserved.cpu"}},
		"stalls over the same time":            {"pressure: {psi: {io: {kind: some, window: 60s, threshold: 5%}}}\n", "pressure: {psi: {io: {kind: full, window: 1m, threshold: 5%}}}\n", []string{"pressure.psi.io.kind"}},
		"runtimes as a whole":                  {"", "runtimes: [{type: cri, endpoint: /run/a.sock}]\n", []string{"runtimes"}},
		"an endpoint":                          {"runtimes: [{type: cri, endpoint: /run/a.sock}]\n", "runtimes: [{type: cri, endpoint: /run/b.sock}]\n", []string{"runtimes"}},
		"several, in the order of the file":    {"", "log: {level: debug}\nnode: {maxPods: 5, name: a}\n", []string{"node.name", "node.maxPods", "log.level"}},
		"a list of maps":                       {"", "shutdown: {critical: [{name: db}]}\n", []string{"shutdown.critical"}},
		"a switch from auto to what auto does": {"", "imageGC: {enabled: true}\n", []string{"imageGC.enabled"}},
	} {
		t.Run(name, func(t *testing.T) {
			before, err := config.Parse("before.yaml", []byte(c.before))
			if err != nil {
				t.Fatal(err)
			}
			after, err := config.Parse("after.yaml", []byte(c.after))
			if err != nil {
				t.Fatal(err)
			}
			if got := config.Changed(before, after); !reflect.DeepEqual(got, c.want) {
				t.Errorf("Changed() = %q, want %q", got, c.want)
			}
			if got := config.Changed(after, before); !reflect.DeepEqual(got, c.want) {
				t.Errorf("Changed() the other way round = %q, want %q", got, c.want)
			}
		})
	}
}

// If Changed missed a key, a reload would neither apply nor reject its change.
func TestChangedSeesEveryKey(t *testing.T) {
	for i := range 200 { // far more than there are keys
		before, after := config.Default(), config.Default()
		skip := i
		path, found := spoil(reflect.ValueOf(&after).Elem(), "", &skip)
		if !found {
			if i < 40 {
				t.Fatalf("the configuration has only %d keys", i)
			}
			return
		}
		if got := config.Changed(before, after); len(got) != 1 || got[0] != path {
			t.Errorf("Changed() after a change of %s = %q, want it alone", path, got)
		}
	}
	t.Fatal("the configuration has more keys than this test checks")
}

// A reload passes these keys to the agent's loops. A further key would look effective without being
// so.
func TestLiveKeys(t *testing.T) {
	for key, want := range map[string]bool{
		"imageGC.interval": true, "imageGC.keep": true, "imageGC.enabled": false, "imageGC": false,
		"containerGC.maxContainers": true, "containerGC.enabled": false,
		"pressure.psi.io.kind": true, "conditions.timeout": true, "node.address.internal": true, "node.reserved.ephemeral-storage": true,
		"node.maxPods": true, "node.labels": false, "status.maxImages": true, "status.updateInterval": false,
		"log.level": true, "log.format": false, "runtimes": false, "shutdown.gracePeriod": false, "no.such.key": false, "": false,
	} {
		if got := config.Live(key); got != want {
			t.Errorf("Live(%q) = %t, want %t", key, got, want)
		}
	}
}

// spoil changes the skip-th value of v, and returns its key.
func spoil(v reflect.Value, path string, skip *int) (string, bool) {
	if _, whole := v.Interface().(config.Runtimes); v.Kind() == reflect.Struct && !whole {
		for i := range v.NumField() {
			key := v.Type().Field(i).Tag.Get("yaml")
			if path != "" {
				key = path + "." + key
			}
			if name, found := spoil(v.Field(i), key, skip); found {
				return name, true
			}
		}
		return "", false
	}
	if *skip--; *skip >= 0 {
		return "", false
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + int64(time.Second))
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"x": "y"}))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	default: // runtimes
		v.Set(reflect.ValueOf(config.Runtimes{List: []config.Runtime{{Type: "x"}}}))
	}
	return path, true
}
