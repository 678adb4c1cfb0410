//go:build integration

package packages_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hostler.io/hostler/packaging/made"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/packages"
)

var (
	update = flag.Bool("update", false, "write what is in the packages")

	first, second string // folders of the same packages, built twice
	cache         string // Go's cache of the second build; empty if both share one
	house         *packages.Tree
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "hostler-packages-")
	if err == nil {
		err = prepare(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepare(dir string) error {
	ctx, log := context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil))
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	first, err = packages.Build(ctx, root, filepath.Join(dir, "first"), "022")
	if err != nil {
		return err
	}
	// Another folder, umask, time zone and language. With HOSTLER_TEST_LONG, everything is compiled
	// again, which takes minutes, so only for one architecture.
	environ := []string{
		"ARCHITECTURES=" + goruntime.GOARCH, "GOMAXPROCS=" + strconv.Itoa(goruntime.NumCPU()+1),
		"TZ=Pacific/Kiritimati", "LANG=tr_TR.UTF-8", "LC_ALL=C", "HOSTNAME=another",
	}
	if lab.Long() {
		cache = filepath.Join(dir, "cache")
		environ = append(environ, "GOCACHE="+cache)
	}
	second, err = packages.Build(ctx, root, filepath.Join(dir, "another", "place"), "077", environ...)
	if err != nil {
		return err
	}
	later, err := packages.Later(ctx, filepath.Join(dir, "first"), "# theirs")
	if err != nil {
		return err
	}
	house, err = packages.NewTree(ctx, first, later, log)
	return err
}

// sums returns the checksums of a folder's files, by name.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		all[e.Name()] = hex.EncodeToString(sum[:])
	}
	return all
}

func inTree(t *testing.T, script string) string {
	t.Helper()
	out, err := house.Run(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTwoBuildsOfOneCommitAreTheSame(t *testing.T) {
	one, two := sums(t, first), sums(t, second)
	version := made.PackageVersion(packages.Version)
	want := func(debs, rpms []string) []string {
		names := []string{"SHA256SUMS", "hostler-server_" + version + "_all.deb", "hostler-server-" + version + ".noarch.rpm"}
		for _, arch := range debs {
			names = append(names, "hostler_"+packages.Version+"_"+arch+".cdx.json", "hostler_"+version+"_"+arch+".deb")
		}
		for _, arch := range rpms {
			names = append(names, "hostler-"+version+"."+arch+".rpm")
		}
		return slices.Sorted(slices.Values(names))
	}
	rpms := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	if got, want := slices.Sorted(maps.Keys(one)), want([]string{"amd64", "arm64"}, []string{"x86_64", "aarch64"}); !slices.Equal(got, want) {
		t.Errorf("make package makes %q, want %q", got, want)
	}
	if got, want := slices.Sorted(maps.Keys(two)), want([]string{goruntime.GOARCH}, []string{rpms[goruntime.GOARCH]}); !slices.Equal(got, want) {
		t.Errorf("make package for one architecture makes %q, want %q", got, want)
	}
	delete(two, "SHA256SUMS") // it lists fewer files
	for name, sum := range two {
		if one[name] != sum {
			t.Errorf("%s is %s, then %s", name, one[name], sum)
		}
	}
	if cache == "" {
		return
	}
	// Go creates this file in a new cache.
	if _, err := os.Stat(filepath.Join(cache, "README")); err != nil {
		t.Errorf("the second build has compiled nothing by itself: %v", err)
	}
}

func TestTheChecksumsAreThoseOfTheFiles(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	want := sums(t, first)
	delete(want, "SHA256SUMS")
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if want[name] != sum {
			t.Errorf("SHA256SUMS says %s of %q, which is %s", sum, name, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("SHA256SUMS lacks %v", want)
	}
}

// testdata/contents.txt lists the content of both kinds, for reviews. It leaves out the names of
// pages: there is a man page for each command, and many pages of docs.
func TestWhatIsInThePackages(t *testing.T) {
	version := made.PackageVersion(packages.Version)
	for _, arch := range []string{"amd64 x86_64", "arm64 aarch64"} {
		deb, rpm, _ := strings.Cut(arch, " ")
		listing := inTree(t, fmt.Sprintf(`
			sorted() { sed -E 's|/man1/[^/]+$|/man1/*|; s|/docs/(([a-z]+/)?)[^/]+\.md$|/docs/\1*.md|' | sort -u -k 3; }
			echo '# the deb'
			dpkg-deb --fsys-tarfile /packages/hostler_%[1]s_%[2]s.deb | tar --list --verbose --numeric-owner | sed -E 's|^([^ ]+) +([^ ]+) .* \./|\1 \2 /|' | sorted
			echo '# of which are the administrator'\''s'
			dpkg-deb --info /packages/hostler_%[1]s_%[2]s.deb conffiles
			echo '# the rpm'
			rpm --query --package --queryformat '[%%{FILEMODES:perms} %%{FILEUSERNAME}/%%{FILEGROUPNAME} %%{FILENAMES} %%{FILEFLAGS:fflags}\n]' /packages/hostler-%[1]s.%[3]s.rpm | sed 's/ $//' | sorted
			echo '# the deb of the server'
			dpkg-deb --fsys-tarfile /packages/hostler-server_%[1]s_all.deb | tar --list --verbose --numeric-owner | sed -E 's|^([^ ]+) +([^ ]+) .* \./|\1 \2 /|' | sort -u -k 3
			echo '# of which are the administrator'\''s'
			dpkg-deb --info /packages/hostler-server_%[1]s_all.deb conffiles
			echo '# the rpm of the server'
			rpm --query --package --queryformat '[%%{FILEMODES:perms} %%{FILEUSERNAME}/%%{FILEGROUPNAME} %%{FILENAMES} %%{FILEFLAGS:fflags}\n]' /packages/hostler-server-%[1]s.noarch.rpm | sed 's/ $//' | sort -u -k 3
		`, version, deb, rpm))
		golden := filepath.Join("testdata", "contents.txt")
		if *update {
			if err := os.WriteFile(golden, []byte(listing), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if listing != string(want) {
			t.Errorf("the packages of %s hold\n%s\nwant what is in %s; -update writes it", deb, listing, golden)
		}
	}
}

func TestThePackagesSayWhatTheyAre(t *testing.T) {
	version := made.PackageVersion(packages.Version)
	got := inTree(t, fmt.Sprintf(`
		dpkg-deb --field /packages/hostler_%[1]s_arm64.deb Package Version Architecture Maintainer
		dpkg-deb --field /packages/hostler-server_%[1]s_all.deb Package Depends
		rpm --query --package --queryformat '%%{NAME} %%{VERSION}-%%{RELEASE} %%{ARCH} %%{PACKAGER} %%{BUILDHOST}\n' /packages/hostler-%[1]s.aarch64.rpm
		rpm --query --package --requires /packages/hostler-server-%[1]s.noarch.rpm | grep '^hostler '
		# A version that comes before the release is older to both.
		dpkg --compare-versions %[1]s lt 0.1.0-1
		rpm --eval '%%{lua:print(rpm.vercmp("0.1.0~dev.42+g0123456789ab", "0.1.0"))}'
	`, version))
	want := fmt.Sprintf("Package: hostler\nVersion: %[1]s\nArchitecture: arm64\nMaintainer: %[2]s\n"+
		"Package: hostler-server\nDepends: hostler (>= %[1]s), systemd\n"+
		"hostler %[1]s aarch64 %[2]s localhost\nhostler >= %[1]s\n-1\n", version, made.Maintainer)
	if got != want {
		t.Errorf("the packages say\n%s\nwant\n%s", got, want)
	}
}

// Both tools check the man pages, too. Accepted findings are in packaging/lintian-overrides and
// packaging/rpmlint.toml, each with its reason.
func TestDebiansCheckFindsNothing(t *testing.T) {
	out := inTree(t, `runuser -u nobody -- env HOME=/tmp lintian --fail-on none --tag-display-limit 0 /packages/*.deb`)
	if strings.TrimSpace(out) != "" {
		t.Errorf("lintian says\n%s\nwant nothing", out)
	}
}

func TestTheCheckOfRpmsFindsNothing(t *testing.T) {
	text, err := os.ReadFile("../../packaging/rpmlint.toml")
	if err != nil {
		t.Fatal(err)
	}
	out := inTree(t, "cat >/tmp/rpmlint.toml <<'END'\n"+string(text)+"END\nrpmlint --config /tmp/rpmlint.toml /packages/*.rpm || true")
	if !strings.Contains(out, " 0 errors, 0 warnings") {
		t.Errorf("rpmlint says\n%s\nwant no errors and no warnings", out)
	}
}

func TestTheBinariesAreStatic(t *testing.T) {
	for deb, machine := range map[string]string{"amd64": "X86-64", "arm64": "AArch64"} {
		out := inTree(t, "dpkg-deb -x /packages/hostler_*_"+deb+".deb /tmp/x && readelf --wide --file-header --program-headers /tmp/x/usr/bin/hostler")
		if !strings.Contains(out, machine) || strings.Contains(out, "INTERP") || strings.Contains(out, "DYNAMIC") {
			t.Errorf("the binary of %s is\n%s\nwant one for %s that needs nobody", deb, out, machine)
		}
	}
}

func TestTheBillsOfMaterialsListModulesAndGo(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		text, err := os.ReadFile(filepath.Join(first, "hostler_"+packages.Version+"_"+arch+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		var bill struct {
			BOMFormat string
			Metadata  struct {
				Timestamp string
				Component struct{ Name, Version, PURL string }
			}
			Components []struct {
				Name, Version, PURL string
				Hashes              []struct{ Alg, Content string }
			}
		}
		if err := json.Unmarshal(text, &bill); err != nil {
			t.Fatal(err)
		}
		if c := bill.Metadata.Component; bill.BOMFormat != "CycloneDX" || bill.Metadata.Timestamp != "2023-11-14T22:13:20Z" || c.Name != "hostler" || c.Version != packages.Version || c.PURL != "pkg:golang/hostler.io/hostler@0.1.0-dev.42%2Bg0123456789ab" {
			t.Errorf("the bill of %s begins with %s, %+v", arch, bill.BOMFormat, bill.Metadata)
		}
		seen := map[string]bool{}
		for _, c := range bill.Components {
			seen[c.Name] = true
			if c.Name != "std" && (len(c.Hashes) != 1 || c.Hashes[0].Alg != "SHA-256" || len(c.Hashes[0].Content) != 64) {
				t.Errorf("the bill of %s has %+v, want its checksum", arch, c)
			}
			if !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@") || strings.Contains(c.PURL, "+") {
				t.Errorf("the bill of %s has the address %q of %s, want it encoded", arch, c.PURL, c.Name)
			}
		}
		for _, want := range []string{"std", "github.com/spf13/cobra", "k8s.io/api"} {
			if !seen[want] {
				t.Errorf("the bill of %s lacks %s", arch, want)
			}
		}
	}
}

// machine returns Debian's name of this machine's architecture: the package that can run here.
func machine(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "dpkg", "--print-architecture").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
