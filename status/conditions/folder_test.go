package conditions_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/status/conditions"
)

func policy(folder string) conditions.Policy {
	return conditions.Policy{Folder: folder, Interval: 30 * time.Second, Timeout: 10 * time.Second, User: "daemon"} // which every host has
}

const script = "#!/bin/sh\nexit 0\n"

// put writes a file with that mode, whatever the umask.
func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func header(lines ...string) string {
	return "#!/bin/sh\n# hostler:\n#   " + strings.Join(lines, "\n#   ") + "\nexit 0\n"
}

// letWrite adds an access control list to a file that lets one more user write it, like `setfacl -m
// u:NUMBER:rwx` (acl(5), and posix_acl_xattr.h of the kernel).
func letWrite(t *testing.T, path string, user uint32) {
	t.Helper()
	const nobodyInParticular = 0xffffffff
	list := binary.LittleEndian.AppendUint32(nil, 2) // the version
	for _, e := range []struct {
		tag, may uint16
		who      uint32
	}{{0x01, 7, nobodyInParticular}, {0x02, 7, user}, {0x04, 5, nobodyInParticular}, {0x10, 7, nobodyInParticular}, {0x20, 5, nobodyInParticular}} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.may)
		list = binary.LittleEndian.AppendUint32(list, e.who)
	}
	if err := unix.Setxattr(path, "system.posix_acl_access", list, 0); err != nil {
		t.Fatal(err)
	}
}

func TestWhichFilesAreChecks(t *testing.T) {
	type fault struct{ file, part string }
	for name, c := range map[string]struct {
		lay    func(t *testing.T, folder string)
		types  []string
		faults []fault
	}{
		"a script by its name":   {lay: func(t *testing.T, f string) { put(t, f+"/disk-failing.sh", script, 0o755) }, types: []string{"hostler.io/DiskFailing"}},
		"a script by its header": {lay: func(t *testing.T, f string) { put(t, f+"/x", header("type: example.com/B"), 0o700) }, types: []string{"example.com/B"}},
		"what is for somebody else": {lay: func(t *testing.T, f string) {
			for _, name := range []string{".hidden", "x~", "x.bak", "x.dpkg-new", "README.md"} {
				put(t, f+"/"+name, script, 0o755)
			}
			if err := os.Mkdir(f+"/lib", 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		"a binary with a header beside it": {lay: func(t *testing.T, f string) {
			put(t, f+"/binary", "\x7fELF", 0o755)
			put(t, f+"/binary.yaml", "type: example.com/A\n", 0o644)
		}, types: []string{"example.com/A"}},
		"a link to a file elsewhere": {lay: func(t *testing.T, f string) {
			put(t, filepath.Dir(f)+"/elsewhere", script, 0o755)
			if err := os.Symlink("../elsewhere", f+"/linked"); err != nil {
				t.Fatal(err)
			}
		}, types: []string{"hostler.io/Linked"}},
		"a file that is not executable":        {lay: func(t *testing.T, f string) { put(t, f+"/x", script, 0o644) }, faults: []fault{{"x", "not executable"}}},
		"a file that others may write":         {lay: func(t *testing.T, f string) { put(t, f+"/x", script, 0o757) }, faults: []fault{{"x", "is writable by users other than root"}}},
		"a file that the group root may write": {lay: func(t *testing.T, f string) { put(t, f+"/x", script, 0o775) }, faults: []fault{{"x", "is writable by users other than root"}}},
		"a file that a list of its own lets another user write": {lay: func(t *testing.T, f string) {
			put(t, f+"/x", script, 0o755)
			letWrite(t, f+"/x", 1234)
		}, faults: []fault{{"x", "is writable by users other than root"}}},
		"a folder that others may write":          {lay: func(t *testing.T, f string) { put(t, f+"/x", script, 0o755); _ = os.Chmod(f, 0o777) }, faults: []fault{{"", "is writable by users other than root"}}},
		"a folder with the sticky bit":            {lay: func(t *testing.T, f string) { put(t, f+"/x", script, 0o755); _ = os.Chmod(f, 0o777|os.ModeSticky) }, faults: []fault{{"", "is writable by users other than root"}}},
		"a folder above it that others may write": {lay: func(t *testing.T, f string) { put(t, f+"/x", script, 0o755); _ = os.Chmod(filepath.Dir(f), 0o777) }, faults: []fault{{"", "is writable by users other than root"}}},
		"a link into a folder that others may write": {lay: func(t *testing.T, f string) {
			open := filepath.Dir(f) + "/open"
			if err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o777), os.Symlink("../open/x", f+"/x")); err != nil {
				t.Fatal(err)
			}
			put(t, open+"/x", script, 0o755)
		}, faults: []fault{{"x", "is writable by users other than root"}}},
		"a link by way of one that others may lead elsewhere": {lay: func(t *testing.T, f string) {
			open := filepath.Dir(f) + "/open"
			put(t, filepath.Dir(f)+"/fine", script, 0o755)
			if err := errors.Join(os.Mkdir(open, 0o755), os.Chmod(open, 0o777), os.Symlink("../fine", open+"/x"), os.Symlink("../open/x", f+"/x")); err != nil {
				t.Fatal(err)
			}
		}, faults: []fault{{"x", "is writable by users other than root"}}},
		"a link that leads nowhere": {lay: func(t *testing.T, f string) { _ = os.Symlink("nowhere", f+"/x") }, faults: []fault{{"x", "broken symbolic link"}}},
		"a link to itself":          {lay: func(t *testing.T, f string) { _ = os.Symlink("x", f+"/x") }, faults: []fault{{"x", "too many levels"}}},
		"a fifo":                    {lay: func(t *testing.T, f string) { _ = syscall.Mkfifo(f+"/x", 0o755) }, faults: []fault{{"x", "not a regular file"}}},
		"a header of nothing":       {lay: func(t *testing.T, f string) { put(t, f+"/x.yaml", "", 0o644) }, faults: []fault{{"x.yaml", "describes x, which does not exist"}}},
		"a header by another name": {lay: func(t *testing.T, f string) {
			put(t, f+"/x", script, 0o755)
			put(t, f+"/x.yml", "", 0o644)
		}, types: []string{"hostler.io/X"}, faults: []fault{{"x.yml", "does not end in .yaml"}}},
		"two headers": {lay: func(t *testing.T, f string) {
			put(t, f+"/x", header("reason: A"), 0o755)
			put(t, f+"/x.yaml", "reason: B\n", 0o644)
		}, faults: []fault{{"x.yaml", "x has a header of its own"}}},
		"a header beside it that others may write": {lay: func(t *testing.T, f string) {
			put(t, f+"/x", script, 0o755)
			put(t, f+"/x.yaml", "", 0o666)
		}, faults: []fault{{"x.yaml", "is writable by users other than root"}}},
		"an unknown key":          {lay: func(t *testing.T, f string) { put(t, f+"/x", header("reason: A", "what: ever"), 0o755) }, faults: []fault{{"x", ":4: what: unknown key"}}},
		"a user who is not there": {lay: func(t *testing.T, f string) { put(t, f+"/x", header("user: who-is-not-there"), 0o755) }, faults: []fault{{"x", "is not run because of its user: "}}},
		"an interpreter that others may write": {lay: func(t *testing.T, f string) {
			put(t, filepath.Dir(f)+"/shell", "", 0o757)
			put(t, f+"/x", "#!"+filepath.Dir(f)+"/shell\n", 0o755)
		}, faults: []fault{{"x", "/shell is writable by users other than root"}}},
		"a name that makes no type": {lay: func(t *testing.T, f string) { put(t, f+"/ä", script, 0o755) }, faults: []fault{{"ä", "cannot derive the condition type"}}},
		"a name of hostler's own":   {lay: func(t *testing.T, f string) { put(t, f+"/shutdown-protected", script, 0o755) }, faults: []fault{{"shutdown-protected", "reports itself"}}},
		"a type that is no reason":  {lay: func(t *testing.T, f string) { put(t, f+"/x", header("type: example.com/a.b"), 0o755) }, faults: []fault{{"x", `"a.b" is not one word`}}},
		"two of one type": {lay: func(t *testing.T, f string) {
			put(t, f+"/a-b", script, 0o755)
			put(t, f+"/other", header("type: hostler.io/AB"), 0o755)
		}, faults: []fault{{"a-b", "other have the same type hostler.io/AB"}, {"other", "a-b and "}}},
		"too many": {lay: func(t *testing.T, f string) {
			for i := range conditions.MaxPrograms {
				put(t, fmt.Sprintf("%s/a%03d", f, i), "#!/bin/sh\n", 0o755)
			}
			put(t, f+"/b", script, 0o755)
		}, types: make([]string, conditions.MaxPrograms), faults: []fault{{"b", "limit of 100 checks"}}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "conditions.d")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			c.lay(t, folder)
			programs, faults := conditions.Read(policy(folder))
			if len(programs) != len(c.types) || len(faults) != len(c.faults) {
				t.Fatalf("Read() = %+v, faults %v, want types %q, faults %q", programs, faults, c.types, c.faults)
			}
			for i, p := range programs {
				if c.types[i] != "" && string(p.Type) != c.types[i] {
					t.Errorf("Read() = type %s, want %s", p.Type, c.types[i])
				}
			}
			for i, f := range faults {
				if path := filepath.Join(folder, c.faults[i].file); !strings.HasPrefix(f.String(), path) || !strings.Contains(f.String(), c.faults[i].part) || f.Fix == "" {
					t.Errorf("Read() = fault %+v, want of %s that it %s, with its fix", f, path, c.faults[i].part)
				}
			}
		})
	}
}

// Checks of other users than root need the user that the packages create.
func TestAHostWithoutTheUserOfChecks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an agent that is not root runs checks as its own user")
	}
	folder := t.TempDir()
	put(t, folder+"/x", script, 0o755)
	put(t, folder+"/y", header("user: root"), 0o755)
	p := policy(folder)
	p.User = "hostler-none"
	programs, faults := conditions.Read(p)
	if len(programs) != 1 || len(faults) != 1 || !strings.Contains(faults[0].Problem, `no user "hostler-none" on this host`) || faults[0].Fix == "" {
		t.Errorf("Read() = %+v, %v, want that x lacks its user", programs, faults)
	}
}

// An agent that is not root can run such a program, but not read its header.
func TestAProgramThatTheAgentCannotRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads all files")
	}
	folder := t.TempDir()
	put(t, folder+"/x", script, 0o111)
	programs, faults := conditions.Read(policy(folder))
	if len(programs) != 0 || len(faults) != 1 || !strings.Contains(faults[0].Fix, fmt.Sprintf("let user %d, which runs hostler, read it", os.Geteuid())) {
		t.Errorf("Read() = %+v, %v, want who must be able to read it", programs, faults)
	}
}

func TestDefaultsOfAHeader(t *testing.T) {
	folder := t.TempDir()
	put(t, folder+"/disk-failing", script, 0o755)
	programs, faults := conditions.Read(policy(folder))
	if len(programs) != 1 || len(faults) > 0 {
		t.Fatalf("Read() = %+v, %v, want one check", programs, faults)
	}
	p := programs[0]
	who := "daemon"
	if os.Geteuid() != 0 {
		who = fmt.Sprint(os.Geteuid())
	}
	if p.Interval != 30*time.Second || p.Timeout != 10*time.Second || p.Reason != "DiskFailing" || p.User != who || p.Temporary {
		t.Errorf("Read() = %+v, want the policy's interval and time-out, reason DiskFailing, user %s", p, who)
	}
}

func TestAFolderThatIsNotThere(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if _, faults := conditions.Read(policy(missing)); len(faults) != 1 || !strings.Contains(faults[0].String(), missing+": cannot be read: no such file") {
		t.Errorf("Read() = faults %v, want that the folder that somebody named is not there", faults)
	}
	if _, err := os.Stat(conditions.DefaultFolder); err == nil {
		t.Fatalf("this host has %s, want none", conditions.DefaultFolder)
	}
	if programs, faults := conditions.Read(conditions.Policy{Folder: conditions.DefaultFolder, Optional: true}); len(programs)+len(faults) > 0 {
		t.Errorf("Read() = %v, %v, want nothing where the default folder is not there", programs, faults)
	}
}

func TestInvalidPolicies(t *testing.T) {
	for want, p := range map[string]conditions.Policy{
		`conditions.directory: "here" is not an absolute path`: {Folder: "here", Interval: time.Second, Timeout: time.Second},
		"conditions.interval: 0s is shorter than 1s":           {Folder: "/x", Timeout: time.Second},
		"conditions.timeout: 2h0m0s is longer than 1h0m0s":     {Folder: "/x", Interval: time.Second, Timeout: 2 * time.Hour},
	} {
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("Validate() of %+v = %v, want %s", p, err, want)
		}
	}
}
