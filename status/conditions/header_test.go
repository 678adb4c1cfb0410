package conditions_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

func TestHeaders(t *testing.T) {
	const above = "#!/bin/sh\n# Looks after the disks.\n#\n"
	for name, c := range map[string]struct {
		in    string
		want  conditions.Header
		found bool
		fault string // the first fault; none if empty
	}{
		"no comment at all":            {in: "#!/bin/sh\nexit 0\n"},
		"comments and no header":       {in: above + "exit 0\n"},
		"an empty header":              {in: above + "# hostler:\nexit 0\n", found: true},
		"a header below the code":      {in: "#!/bin/sh\nexit 0\n# hostler:\n#   type: Ready\n"},
		"the mark within the code":     {in: "#!/bin/sh\necho hostler:\n"},
		"what follows less indented":   {in: above + "# hostler:\n#   user: root\n# type: nothing of it\n", found: true, want: conditions.Header{User: "root"}},
		"without blanks, and two of #": {in: "#!/bin/sh\n##hostler:\n## user: root\n", found: true, want: conditions.Header{User: "root"}},
		"lines that end as on Windows": {in: "#!/bin/sh\r\n# hostler:\r\n#   user: root\r\nexit 0\r\n", found: true, want: conditions.Header{User: "root"}},
		"keys that are not indented":   {in: above + "# hostler:\n# user: root\n# type: example.com/A\n", found: true, fault: "f:5: user: not indented, so it is not a key of the header"},
		"prose below an empty one":     {in: above + "# hostler:\n# Note: it needs root.\n", found: true},
		"all keys": {
			in: above + "# hostler:\n#   type: example.com/DiskFailing\n#   reason: SmartSaysSo   # a comment\n#   interval: 5m\n#   timeout: 1m30s\n#   user: root\n#   temporary: true\n\nexit 0\n", found: true,
			want: conditions.Header{Type: "example.com/DiskFailing", Reason: "SmartSaysSo", User: "root", Interval: 5 * time.Minute, Timeout: 90 * time.Second, Temporary: true},
		},
		"an unknown key":                {in: above + "# hostler:\n#   user: root\n#   intervall: 5m\n", found: true, fault: "f:6: intervall: unknown key; known here: type, reason, interval, timeout, user, temporary"},
		"a key twice":                   {in: above + "# hostler:\n#   user: root\n#   user: nobody\n", found: true, fault: "f:6: user: set twice"},
		"two headers":                   {in: above + "# hostler:\n#   user: root\n# hostler:\n#   reason: A\n", found: true, fault: "f:6: second header"},
		"the keys behind the mark":      {in: above + "# hostler: {user: root}\n", fault: `f:4: "hostler: {user: root}" does not start a header`},
		"the mark in capitals":          {in: above + "# Hostler:\n#   user: root\n", fault: `f:4: "Hostler:" does not start a header`},
		"no YAML":                       {in: above + "# hostler:\n#   user: root\n#   type\n#   reason: A\n", found: true, fault: "f:6: not valid YAML"},
		"a list":                        {in: above + "# hostler:\n#   - user: root\n", found: true, fault: "f:5: the header is not a map of keys"},
		"a list as a value":             {in: above + "# hostler:\n#   user: [root]\n", found: true, fault: "f:5: user: must be a single value"},
		"an alias as a value":           {in: above + "# hostler:\n#   user: &a root\n#   reason: *a\n", found: true, fault: "f:6: reason: must be a single value"},
		"a key without a value":         {in: above + "# hostler:\n#   user:\n", found: true, fault: "f:5: user: must be a single value"},
		"a duration without its unit":   {in: above + "# hostler:\n#   interval: 5\n", found: true, fault: `f:5: interval: "5" is not a duration with a unit`},
		"an interval that is too short": {in: above + "# hostler:\n#   interval: 10ms\n", found: true, fault: "f:5: interval: 10ms is shorter than 1s"},
		"a time-out that is too long":   {in: above + "# hostler:\n#   timeout: 2h\n", found: true, fault: "f:5: timeout: 2h0m0s is longer than 1h0m0s"},
		"true in quotes":                {in: above + "# hostler:\n#   temporary: 'true'\n", found: true, fault: `f:5: temporary: "true" is neither true nor false`},
		"a reason of two words":         {in: above + "# hostler:\n#   reason: too bad\n", found: true, fault: `f:5: reason: "too bad" is not one word`},
		"a condition of Kubernetes'":    {in: above + "# hostler:\n#   type: DiskPressure\n", found: true, fault: "f:5: type: DiskPressure is a condition that hostler or a kubelet reports itself"},
		"a condition of hostler's":      {in: above + "# hostler:\n#   type: hostler.io/ShutdownProtected\n", found: true, fault: "f:5: type: hostler.io/ShutdownProtected is a condition that hostler"},
		"a domain of Kubernetes'":       {in: above + "# hostler:\n#   type: node.kubernetes.io/Fine\n", found: true, fault: "f:5: type: node.kubernetes.io/Fine is in a domain of Kubernetes"},
		"a type that is no name":        {in: above + "# hostler:\n#   type: disk failing\n", found: true, fault: `f:5: type: "disk failing" is not a qualified name, such as hostler.io/DiskFailing: write DOMAIN/NAME, the domain in lower case, the name of letters, digits, '.', '-' and '_'`},
		"two documents":                 {in: above + "# hostler:\n#   user: root\n#   ---\n#   user: nobody\n", found: true, fault: "f:"},
	} {
		t.Run(name, func(t *testing.T) {
			got, found, faults := conditions.ParseScript("f", []byte(c.in))
			if found != c.found {
				t.Errorf("ParseScript() finds a header: %v, want %v", found, c.found)
			}
			switch {
			case c.fault == "" && (len(faults) > 0 || got != c.want):
				t.Errorf("ParseScript() = %+v, %v, want %+v", got, faults, c.want)
			case c.fault != "" && (len(faults) == 0 || !strings.HasPrefix(faults[0].String(), c.fault) || faults[0].Fix == ""):
				t.Errorf("ParseScript() = faults %+v, want one that begins %q, with its fix", faults, c.fault)
			}
		})
	}
}

func TestTheHeaderBesideABinary(t *testing.T) {
	got, faults := conditions.ParseFile("f.yaml", []byte("# of a binary\ntype: example.com/A\ntemporary: false\n"))
	if want := (conditions.Header{Type: "example.com/A"}); got != want || len(faults) > 0 {
		t.Errorf("ParseFile() = %+v, %v, want %+v", got, faults, want)
	}
	_, faults = conditions.ParseFile("f.yaml", []byte("type: example.com/A\nwhat: ever\n"))
	if len(faults) != 1 || !strings.HasPrefix(faults[0].String(), "f.yaml:2: what: unknown key") {
		t.Errorf("ParseFile() = faults %v, want one in line 2", faults)
	}
	if _, faults := conditions.ParseFile("f.yaml", []byte("user: root\n---\nuser: nobody\n")); len(faults) != 1 || faults[0].String() != "f.yaml:1: more than one YAML document" {
		t.Errorf("ParseFile() = faults %v, want that there are two documents", faults)
	}
	if got, faults := conditions.ParseFile("f.yaml", nil); got != (conditions.Header{}) || len(faults) > 0 {
		t.Errorf("ParseFile() of nothing = %+v, %v, want nothing", got, faults)
	}
}

func TestTypesFromNames(t *testing.T) {
	for name, want := range map[string]string{
		"disk-failing": "hostler.io/DiskFailing", "disk_failing.sh": "hostler.io/DiskFailing", "NTPBroken": "hostler.io/NTPBroken",
		"a--b-": "hostler.io/AB", "10-raid.py": "hostler.io/10Raid", "-": "hostler.io/",
	} {
		if got := conditions.TypeOf(name); got != want {
			t.Errorf("TypeOf(%q) = %q, want %q", name, got, want)
		}
	}
}

// FuzzHeader checks that accepted values are valid, and that faults are at lines of the file.
func FuzzHeader(f *testing.F) {
	files, err := filepath.Glob("../../packaging/conditions.d/*")
	if err != nil || len(files) == 0 {
		f.Fatalf("examples %v: %v, want some", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("#!/bin/sh\n# hostler:\n#   type: a\n#\n# hostler:\n#  x: &a [*a]\n"))
	f.Add([]byte("type: b/c\ninterval: 1s\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, _, faults := conditions.ParseScript("f", text)
		wantGood(t, text, h, faults)
		h, faults = conditions.ParseFile("f", text)
		wantGood(t, text, h, faults)
	})
}

func wantGood(t *testing.T, text []byte, h conditions.Header, faults []conditions.Fault) {
	t.Helper()
	for _, fault := range faults {
		if fault.Line < 1 || fault.Line > strings.Count(string(text), "\n")+1 || fault.Problem == "" || fault.Fix == "" {
			t.Errorf("fault %+v of %q, want a line of it, a problem and a fix", fault, text)
		}
	}
	if len(faults) > 0 {
		return
	}
	if h.Type != "" && status.CheckCustomType(h.Type) != nil || h.Interval != 0 && h.Interval < conditions.MinInterval || h.Timeout < 0 || h.Timeout > conditions.MaxTimeout || strings.ContainsAny(h.Reason, " \n") {
		t.Errorf("%q is accepted as %+v", text, h)
	}
}
