package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/gc"
)

func TestWithoutConfigurationCollectionGoesByItsDefaults(t *testing.T) {
	got, err := config.Default().GCPolicy()
	if err != nil {
		t.Fatal(err)
	}
	if want := gc.DefaultPolicy(); got.Containers != want.Containers {
		t.Errorf("GCPolicy() = %+v, want %+v", got.Containers, want.Containers)
	}
}

func TestFaultsNameFileLineAndField(t *testing.T) {
	for name, c := range faults() {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("f.yaml", []byte(c.in))
			var faults config.Faults
			if !errors.As(err, &faults) || !strings.HasPrefix(faults[0].String(), c.want) {
				t.Errorf("Parse(%q) = %v, want a fault that begins %q", c.in, err, c.want)
			}
		})
	}
}

// Of several files that set a key, the last one is effective.
func TestTheOriginOfAKeyIsTheFileWhoseValueIsEffective(t *testing.T) {
	folder := t.TempDir()
	file, dropIns := filepath.Join(folder, "hostler.yaml"), filepath.Join(folder, "conf.d")
	dropIn := filepath.Join(dropIns, "shutdown.yaml")
	if err := errors.Join(os.Mkdir(dropIns, 0o755),
		os.WriteFile(file, []byte("log: {level: info}\nshutdown:\n  gracePeriod: 40s\n"), 0o600),
		os.WriteFile(dropIn, []byte("# off\nshutdown:\n  gracePeriod: 0s\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Draft(file, dropIns)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"shutdown.gracePeriod": dropIn + ":3", "shutdown": dropIn + ":2", "log.level": file + ":1", "shutdown.enabled": "", "node": "",
	} {
		if got := loaded.Origin(key); got != want {
			t.Errorf("Origin(%q) = %q, want %q", key, got, want)
		}
	}
}

// Kubernetes' admission plug-in NodeRestriction rejects these labels.
func TestLabelsThatANodeMayNotSetAreNamed(t *testing.T) {
	for key, refused := range map[string]bool{
		"rack":                                     false,
		"example.com/rack":                         false,
		"notkubernetes.io/rack":                    false,
		"topology.kubernetes.io/zone":              false,
		"topology.kubernetes.io/rack":              true,
		"failure-domain.beta.kubernetes.io/region": false,
		"beta.kubernetes.io/instance-type":         false,
		"node.kubernetes.io/instance-type":         false,
		"gpu.node.kubernetes.io/model":             false,
		"kubelet.kubernetes.io/any":                false,
		"node-role.kubernetes.io/worker":           true,
		"kubernetes.io/role":                       true,
		"k8s.io/role":                              true,
		"sigs.k8s.io/x":                            true,
		"node-restriction.kubernetes.io/x":         true,
		"a.node-restriction.kubernetes.io/x":       true,
	} {
		for _, plane := range []string{"kubernetes", "embedded"} {
			_, err := config.Parse("f.yaml", []byte("controlPlane: {type: "+plane+"}\nnode:\n  labels:\n    "+key+": x\n"))
			named := err != nil && strings.Contains(err.Error(), "f.yaml:4: node.labels."+key+": a node may not give itself this label")
			if want := refused && plane == "kubernetes"; named != want {
				t.Errorf("on %s, Parse() of label %s = %v, want it refused: %t", plane, key, err, want)
			}
		}
	}
}

func TestEveryFaultIsReportedInOrder(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte("lease:\n  ttl: 1\nnode:\n  maxPods: x\n"))
	want := "f.yaml:2: lease.ttl: unknown field; known here: enabled, duration, renewInterval, onLost\n" +
		`f.yaml:4: node.maxPods: "x" is not a whole number`
	if err == nil || err.Error() != want {
		t.Errorf("Parse() = %v, want %s", err, want)
	}
}

func TestDropInsMergeMapsAndReplaceLists(t *testing.T) {
	dir := t.TempDir()
	file, dropIns := filepath.Join(dir, "hostler.yaml"), filepath.Join(dir, "conf.d")
	write(t, file, "node:\n  labels: {a: '1', b: '1'}\nimageGC: {keep: [x, y], highThresholdPercent: 90}\n")
	write(t, filepath.Join(dropIns, "20-b.yaml"), "node: {labels: {b: '3'}}\n")
	write(t, filepath.Join(dropIns, "10-a.yaml"), "node: {labels: {b: '2', c: '2'}}\nimageGC: {keep: [z]}\n")
	write(t, filepath.Join(dropIns, "30-c.yml.bak"), "not: read\n")
	write(t, filepath.Join(dropIns, ".hidden.yaml"), "not: read\n")
	write(t, filepath.Join(dropIns, ".hidden.yml"), "not: read\n")
	write(t, filepath.Join(dropIns, "40-d.yml"), "not: read\n")
	write(t, filepath.Join(dropIns, "50-e.YAML"), "not: read\n")
	write(t, filepath.Join(dir, "hostler.yml"), "not: read\n")

	got, err := config.Load(file, dropIns)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"a": "1", "b": "3", "c": "2"}; !reflect.DeepEqual(got.Node.Labels, want) {
		t.Errorf("labels = %v, want %v", got.Node.Labels, want)
	}
	if want := []string{"z"}; !reflect.DeepEqual(got.ImageGC.Keep, want) || got.ImageGC.HighThresholdPercent != 90 {
		t.Errorf("imageGC = %+v, want keep %v and a high threshold of 90", got.ImageGC, want)
	}
	if want := []string{filepath.Join(dir, "hostler.yml"), filepath.Join(dropIns, "40-d.yml"), filepath.Join(dropIns, "50-e.YAML")}; !reflect.DeepEqual(got.Ignored, want) {
		t.Errorf("Ignored = %v, want %v", got.Ignored, want)
	}
	if want := 3; len(got.Files) != want {
		t.Errorf("Files = %v, want %d of them", got.Files, want)
	}
}

func TestAFaultInADropInNamesTheDropIn(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hostler.yaml")
	write(t, file, "imageGC: {lowThresholdPercent: 70}\n")
	write(t, filepath.Join(dir, "conf.d", "x.yaml"), "\nimageGC:\n  highThresholdPercent: 60\n")
	_, err := config.Load(file, filepath.Join(dir, "conf.d"))
	if want := file + ":1: imageGC.lowThresholdPercent: 70 is not below imageGC.highThresholdPercent (60)"; err == nil || err.Error() != want {
		t.Errorf("Load() = %v, want %s", err, want)
	}
}

// A value with invalid notation must not hide another fault, and must not cause follow-up faults.
func TestFaultsOfNotationAndOfValuesAreReportedTogether(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte(`lease: {duration: 40x, renewInterval: 30s}
imageGC: {highThresholdPercent: many, lowThresholdPercent: 120}
node: {name: Host_1, maxPods: 0}
controlPlane: {type: kubernetes, kubernetes: {kubeconfg: /a}}
shutdown: {gracePeriod: 5, gracePeriodCriticalPods: 1h}
log: {level: loud}
`))
	faults, _ := errors.AsType[config.Faults](err)
	var got []string
	for _, f := range faults {
		got = append(got, f.Field)
	}
	slices.Sort(got)
	want := []string{
		"controlPlane.kubernetes.kubeconfg", "imageGC.highThresholdPercent", "imageGC.lowThresholdPercent", "lease.duration", "log.level",
		"node.maxPods", "node.name", "shutdown.gracePeriod",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Parse() finds faults at %q, want %q:\n%v", got, want, err)
	}
}

func TestNoFileAtAllIsAWorkingConfiguration(t *testing.T) {
	got, err := config.Load("", filepath.Join(t.TempDir(), "missing"))
	if err != nil || !reflect.DeepEqual(got.Config, config.Default()) {
		t.Errorf("Load() = %+v, %v, want the defaults", got.Config, err)
	}
}

func TestANamedFileMustBeThere(t *testing.T) {
	for _, open := range []string{"hostler.yaml", "conf.d/1.yaml", "conf.d", "."} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "conf.d"), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"hostler.yaml", "conf.d/1.yaml"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte("node: {enabled: true}\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, open), 0o777); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(filepath.Join(dir, "hostler.yaml"), filepath.Join(dir, "conf.d"))
		faults, _ := errors.AsType[config.Faults](err)
		if len(faults) == 0 || !strings.Contains(err.Error(), filepath.Join(dir, open)+" is writable by users other than root") || !strings.Contains(err.Error(), "check its content") {
			t.Errorf("Load() where others can change %s = %v, want that as a fault, and what to do", open, err)
		}
		if draft, err := config.Draft(filepath.Join(dir, "hostler.yaml"), filepath.Join(dir, "conf.d")); err != nil || draft.Node.Enabled != config.On {
			t.Errorf("Draft() where others can change %s = %+v, %v, want it read", open, draft.Node, err)
		}
	}
	if _, err := config.Load(filepath.Join(t.TempDir(), "missing.yaml"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Load() = %v, want that the file does not exist", err)
	}
}

// Other users may replace a rejected file by anything: a FIFO, which would block the agent, or a
// link to a device.
func TestARefusedFileIsOpenedOnlyIfItIsRegular(t *testing.T) {
	for name, lay := range map[string]func(path string) error{
		"a FIFO":             func(path string) error { return errors.Join(syscall.Mkfifo(path, 0o600), os.Chmod(path, 0o666)) },
		"a link to a device": func(path string) error { return os.Symlink("/dev/null", path) },
		"a folder":           func(path string) error { return errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "hostler.yaml")
			if err := lay(path); err != nil {
				t.Fatal(err)
			}
			_, err := config.Load(path, "")
			faults, ok := errors.AsType[config.Faults](err)
			if !ok || len(faults) != 1 || !strings.Contains(faults[0].Problem, "writable by users other than root") {
				t.Errorf("Load() = %v, want one fault: others can write it", err)
			}
		})
	}
}

func TestWhatIsPrintedReadsBackTheSame(t *testing.T) {
	documented, err := config.Documented()
	if err != nil {
		t.Fatal(err)
	}
	changed := config.Default()
	changed.Node.Taints = []config.Taint{{Key: "a", Effect: "NoSchedule"}}
	changed.Runtimes = config.Runtimes{List: []config.Runtime{{Type: "cri", Endpoint: "/run/x.sock"}}}
	changed.Lease.Duration = config.Duration(90 * time.Second)
	changed.ImageGC.Enabled = config.Off
	changed.Pressure.PSI.Memory = config.Stall{Kind: "full", Window: config.Duration(time.Minute), Threshold: "20%"}
	byPriority := config.Default()
	byPriority.Shutdown.GracePeriod, byPriority.Shutdown.GracePeriodCriticalPods = 0, 0
	byPriority.Shutdown.ByPriority = []config.PriorityGrace{{Priority: 7, GracePeriod: config.Duration(time.Minute)}}
	off := config.Default()
	off.Shutdown.GracePeriod, off.Shutdown.GracePeriodCriticalPods = 0, 0
	for name, c := range map[string]struct {
		want config.Config
		text []byte
	}{
		"the documented defaults": {config.Default(), documented},
		"a changed configuration": {changed, must(changed.YAML())},
		"phases by priority":      {byPriority, must(byPriority.YAML())},
		"no shutdown guard":       {off, []byte("shutdown: {gracePeriod: 0s}")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.Parse("f.yaml", c.text)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := string(must(got.YAML())), string(must(c.want.YAML())); a != b {
				t.Errorf("read back = %s, want %s", a, b)
			}
		})
	}
}

func TestEveryKeyIsDocumented(t *testing.T) {
	var walk func(typ reflect.Type, path string)
	walk = func(typ reflect.Type, path string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Tag.Get("doc") == "" {
				t.Errorf("%s%s has no doc tag", path, f.Tag.Get("yaml"))
			}
			if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[config.Runtimes]() {
				walk(f.Type, path+f.Tag.Get("yaml")+".")
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
}

func FuzzParse(f *testing.F) {
	documented, err := config.Documented()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(documented)
	f.Add([]byte("node: &a {labels: *a}\n"))
	f.Add([]byte("runtimes: [{type: cri, endpoint: /a}]\nshutdown: {byPriority: [{priority: 3}]}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := config.Parse("f.yaml", in)
		if err != nil {
			var faults config.Faults
			if !errors.As(err, &faults) || len(faults) == 0 {
				t.Fatalf("Parse() = %v, want Faults", err)
			}
			for _, fault := range faults {
				if fault.File != "f.yaml" || fault.Line < 1 {
					t.Fatalf("Parse() = %+v, want its file and line", fault)
				}
			}
			return
		}
		text := must(c.YAML())
		again, err := config.Parse("again.yaml", text)
		if err != nil {
			t.Fatalf("Parse() of what was printed = %v, want no error in\n%s", err, text)
		}
		if string(must(again.YAML())) != string(text) {
			t.Fatalf("read back = %s, want %s", must(again.YAML()), text)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
