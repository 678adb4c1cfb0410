package made_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/packaging/made"
)

var release = made.Release{Version: "1.2.3", Date: time.Unix(1700000000, 0)}

// modules is a list of one, which is hostler itself.
func modules() io.Reader { return strings.NewReader("hostler.io/hostler@v1 ../..\n") }

// files are all that are made, with pages as text.
func files(t *testing.T) map[string]string {
	t.Helper()
	list, err := release.Files(modules())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range list {
		if plain, isPage := strings.CutSuffix(f.Path, ".gz"); isPage {
			r, err := gzip.NewReader(bytes.NewReader(f.Data))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			all[plain] = string(text)
			continue
		}
		all[f.Path] = string(f.Data)
	}
	return all
}

func TestEachCommandHasAManPage(t *testing.T) {
	all := files(t)
	helps, err := filepath.Glob("../../agent/cli/testdata/help/*.golden")
	if err != nil || len(helps) < 20 {
		t.Fatalf("find the commands' help: %d files, %v", len(helps), err)
	}
	pages := 0
	for path := range all {
		if strings.HasPrefix(path, "man1/") {
			pages++
		}
	}
	if pages != len(helps) {
		t.Errorf("Files() has %d pages of commands, want %d", pages, len(helps))
	}
	for _, help := range helps {
		name := strings.TrimSuffix(filepath.Base(help), ".golden")
		page := all["man1/"+name+".1"]
		for _, want := range []string{`.TH "` + strings.ToUpper(name) + `" "1" "2023-11-14" "hostler 1.2.3" "hostler"`, name + ` - `, ".SH SYNOPSIS", `\fB--help\fP`} {
			if !strings.Contains(page, want) {
				t.Errorf("the page of %s = %.300q..., want %q in it", name, page, want)
			}
		}
	}
}

func TestThePageOfTheConfigurationHasEveryKey(t *testing.T) {
	page := files(t)["man5/hostler.yaml.5"]
	keys, err := config.Keys()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		heading := ".SS " + key.Path
		if strings.Contains(key.Path, ".") {
			heading = `\fB` + key.Path + `\fP`
		}
		if !strings.Contains(page, heading+"\n") {
			t.Errorf("hostler.yaml(5) lacks %q", heading)
		}
	}
	for _, want := range []string{"Default: 40s. A change takes a restart.", "Default: 5m. A reload takes a change up.", "a list of {key, value, effect}", "registry.example/base/*"} {
		if !strings.Contains(page, want) {
			t.Errorf("hostler.yaml(5) lacks %q", want)
		}
	}
}

func TestTheSchemaIsWhatTheProgramPrints(t *testing.T) {
	want, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	if got := files(t)["hostler.schema.json"]; got != string(want) {
		t.Errorf("hostler.schema.json = %.300q..., want what hostler config schema prints", got)
	}
}

func TestTheDescriptionOfTheAPIIsOfThisVersion(t *testing.T) {
	if got := files(t)["openapi.json"]; !strings.Contains(got, `"version": "1.2.3"`) || !strings.Contains(got, `"/v1/status"`) {
		t.Errorf("openapi.json = %.300q..., want the routes of this version", got)
	}
}

func TestCompletionsAreWhatTheProgramPrints(t *testing.T) {
	all := files(t)
	for shell, want := range map[string]string{"bash": "__start_hostler", "zsh": "#compdef hostler", "fish": "complete -c hostler"} {
		if !strings.Contains(all["completions/hostler."+shell], want) {
			t.Errorf("the completion of %s lacks %q", shell, want)
		}
	}
}

// Half a package's text would be another one in another time zone.
func TestTheSameReleaseMakesTheSameBytes(t *testing.T) {
	first := files(t)
	release := release
	release.Date = release.Date.In(time.FixedZone("east", 14*3600))
	second, err := release.Files(modules())
	if err != nil {
		t.Fatal(err)
	}
	if len(second) != len(first) {
		t.Errorf("Files() has %d files, then %d", len(first), len(second))
	}
	again, err := made.Release{Version: "1.2.3", Date: time.Unix(1700000000, 0)}.Files(modules())
	if err != nil || !reflect.DeepEqual(second, again) {
		t.Errorf("Files() differs in another time zone: %v", err)
	}
}

func TestLicensesAreHandedOn(t *testing.T) {
	if got := files(t)["notices"]; !strings.Contains(got, "\nhostler.io/hostler@v1: LICENSE\n") || !strings.Contains(got, "Apache License") {
		t.Errorf("the notices are %.500q..., want that of hostler", got)
	}
	for list, want := range map[string]string{
		"none.example/m@v1 testdata\n":     "none.example/m@v1",
		"none.example/m@v1 " + t.TempDir(): "there is none",
	} {
		if _, err := release.Files(strings.NewReader(list)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Files(%q) = %v, want an error with %q", list, err, want)
		}
	}
}

func TestVersionsOfPackages(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3":                      "1.2.3-1",
		"1.2.3-rc.1":                 "1.2.3~rc.1-1",
		"1.2.3+5.g0123456789ab":      "1.2.3+5.g0123456789ab-1",
		"0.1.0-dev.42+g01-23":        "0.1.0~dev.42+g01-23-1",
		"1.2.3-rc.1+5.g0123456789ab": "1.2.3~rc.1+5.g0123456789ab-1",
	} {
		if got := made.PackageVersion(version); got != want {
			t.Errorf("PackageVersion(%q) = %q, want %q", version, got, want)
		}
	}
}

// That of the program is looked at where it is built, in test/packages.
func TestTheBillOfMaterialsOfAnotherFileIsRefused(t *testing.T) {
	if _, err := release.BillOfMaterials("made_test.go"); err == nil || !strings.Contains(err.Error(), "made_test.go") {
		t.Errorf("BillOfMaterials(no binary) = %v, want an error that names it", err)
	}
}

// What the package installs is a configuration, with and without its examples.
func TestTheConfigurationFileOfThePackage(t *testing.T) {
	text, err := os.ReadFile("../hostler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Parse("hostler.yaml", text)
	if err != nil || !reflect.DeepEqual(got, config.Default()) {
		t.Errorf("Parse(hostler.yaml) = %+v, %v, want the defaults", got, err)
	}
	var examples strings.Builder
	for line := range strings.Lines(string(text)) {
		if example, is := strings.CutPrefix(line, "#"); is && (!strings.HasPrefix(example, " ") || strings.HasPrefix(example, "  ")) {
			examples.WriteString(example)
		}
	}
	got, err = config.Parse("hostler.yaml", []byte(examples.String()))
	if err != nil || got.ImageGC.HighThresholdPercent != 75 {
		t.Errorf("Parse() of the examples\n%s= %+v, %v", examples.String(), got.ImageGC, err)
	}
}
