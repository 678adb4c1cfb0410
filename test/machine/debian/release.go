package debian

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
)

// Release is a Debian release.
type Release string

// The releases, by their numbers.
const (
	Bookworm Release = "12" // systemd 252, containerd 1.6
	Trixie   Release = "13" // systemd 257, containerd 1.7
)

// Releases returns all releases.
func Releases() []Release { return []Release{Bookworm, Trixie} }

func (r Release) codename() (string, error) {
	switch r {
	case Bookworm:
		return "bookworm", nil
	case Trixie:
		return "trixie", nil
	}
	return "", fmt.Errorf("unknown Debian release %q: it is 12 or 13", string(r))
}

// packages returns the packages in a release's root. Scenarios with other runtimes add theirs here.
func packages(r Release) []string {
	list := []string{
		"systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev", "kmod", "iproute2", "procps", "e2fsprogs", "mount",
		"busybox-static", "xz-utils", // the shell of the initramfs; unpacks kernel modules
		"containerd", "runc", "crun", "podman", "docker.io",
		"uidmap", // for rootless Podman
		"kexec-tools",
		"curl", "jq", "openssl", // the documentation uses them with the API
	}
	if r == Trixie {
		// Earlier, docker.io includes the first, and its Compose does not record dependencies of
		// services.
		list = append(list, "docker-cli", "docker-compose")
	}
	return list
}

// recipe has all inputs of a root.
type recipe struct {
	release Release
	sources map[string]string // files of package sources, by name
}

// recipeFor returns the recipe of a release, with the host's package sources.
func recipeFor(r Release) (recipe, error) {
	codename, err := r.codename()
	if err != nil {
		return recipe{}, err
	}
	sources, err := sourcesFor(codename, "/etc/apt")
	if err != nil {
		return recipe{}, fmt.Errorf("find package sources of Debian %s: %w", r, err)
	}
	return recipe{r, sources}, nil
}

// edition is raised when the code that builds roots changes.
const edition = 2

// key returns the name of the root: another recipe gives another root.
func (r recipe) key() string {
	return "debian-" + string(r.release) + "-" + r.digest(packages(r.release), kernelHook, initScript, earlyModules(), rootScript, DiskBytes, lines(rootFiles()))
}

// digest returns a hash of the sources and inputs of a root.
func (r recipe) digest(of ...any) string {
	sum := sha256.New()
	fmt.Fprintln(sum, edition, r.release, goruntime.GOARCH)
	fmt.Fprintln(sum, of...)
	fmt.Fprintln(sum, lines(r.sources))
	return hex.EncodeToString(sum.Sum(nil))[:12]
}

// lines returns files as one text.
func lines(files map[string]string) string {
	var b strings.Builder
	for _, name := range sortedKeys(files) {
		fmt.Fprintln(&b, name, files[name])
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// sourcesFor reads Debian's own sources below an apt folder, in both formats, and replaces the
// release in them. Sources of other vendors are left out.
func sourcesFor(codename, apt string) (map[string]string, error) {
	sources := map[string]string{}
	files := []string{filepath.Join(apt, "sources.list")}
	for _, pattern := range []string{"*.list", "*.sources"} {
		found, err := filepath.Glob(filepath.Join(apt, "sources.list.d", pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entries := listEntries(string(data), codename)
		if strings.HasSuffix(file, ".sources") {
			entries = stanzas(string(data), codename)
		}
		if entries != "" {
			sources[filepath.Base(file)] = entries
		}
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("none of %s names a Debian release and component main: this needs a Debian host", strings.Join(files, ", "))
	}
	return sources, nil
}

// retarget changes a suite such as "bookworm-security" into the same suite of another release. ok
// is false for suites that are not Debian's.
func retarget(suite, codename string) (renamed string, ok bool) {
	for _, r := range Releases() {
		known, _ := r.codename()
		rest, found := strings.CutPrefix(suite, known)
		if found && slices.Contains([]string{"", "-updates", "-security"}, rest) {
			return codename + rest, true
		}
	}
	return "", false
}

// listEntries renames the suites of a file with one source per line.
func listEntries(text, codename string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		options, rest := "", strings.TrimSpace(line)
		if strings.HasPrefix(rest, "deb [") {
			if end := strings.Index(rest, "]"); end > 0 {
				options, rest = rest[len("deb "):end+1]+" ", "deb "+rest[end+1:]
			}
		}
		fields := strings.Fields(rest)
		if len(fields) < 4 || fields[0] != "deb" || !slices.Contains(fields[3:], "main") {
			continue
		}
		if suite, ok := retarget(fields[2], codename); ok {
			fmt.Fprintf(&out, "deb %s%s %s main\n", options, fields[1], suite)
		}
	}
	return out.String()
}

// stanzas renames the suites of a deb822 file.
func stanzas(text, codename string) string {
	var kept []string
	for stanza := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		ours, main := false, false
		for line := range strings.Lines(stanza) {
			line = strings.TrimRight(line, "\n")
			field, value, _ := strings.Cut(line, ":")
			switch strings.ToLower(field) {
			case "suites":
				var suites []string
				for _, suite := range strings.Fields(value) {
					if renamed, ok := retarget(suite, codename); ok {
						suites = append(suites, renamed)
					}
				}
				ours = len(suites) > 0
				line = "Suites: " + strings.Join(suites, " ")
			case "components":
				main = slices.Contains(strings.Fields(value), "main")
				line = "Components: main"
			case "types":
				line = "Types: deb"
			}
			if line != "" && !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
		if ours && main {
			kept = append(kept, strings.Join(lines, "\n")+"\n")
		}
	}
	return strings.Join(kept, "\n")
}
