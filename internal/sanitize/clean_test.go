package sanitize_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/internal/sanitize"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "",
		"web":                   "web",
		"Größe 5 µs":            "Größe 5 µs",
		"a\nb\tc\r":             "a b c ",
		"\x1b[31mred":           "?[31mred",
		"\u009b31mred":          "?31mred", // the same sequence, begun by a single character
		"a\u202egnp.exe":        "a?gnp.exe",
		"a\u200bb":              "a?b",
		"a\xffb":                "a?b",
		"a\u2028b":              "a b",
		"a replaced \uFFFD one": "a replaced \uFFFD one",
	} {
		if got := sanitize.Text(in, 100); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	if got, want := sanitize.Text(strings.Repeat("ä", 50), 42), strings.Repeat("ä", 11)+"?…(cut, 100 bytes)"; got != want {
		t.Errorf("Text() of 100 bytes = %q, want %q", got, want)
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"web", "a\nb", "\x1b[31m", "\xff\xfe", "\u202e", strings.Repeat("ä", 200)} {
		f.Add(seed, 64)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 40 || limit > 1<<16 {
			return
		}
		got := sanitize.Text(text, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("Text(%q, %d) = %q, of %d bytes, want it printable and bounded", text, limit, got, len(got))
		}
		if again := sanitize.Text(got, limit); again != got {
			t.Errorf("Text() of %q = %q, want it as it is", got, again)
		}
	})
}

type pod struct {
	Name       string
	ID         string
	At         time.Time
	Labels     map[string]string
	Containers []pod
	Parent     *pod
	private    string
}

func TestCleanCopiesWhatItChanges(t *testing.T) {
	dirty := pod{
		Name: strings.Repeat("n", 300), ID: "id\n", At: time.Unix(5, 0), private: "\x1b",
		Labels:     map[string]string{"a\n": "b\n"},
		Containers: []pod{{Name: "fine"}, {Name: "c\x1b"}},
		Parent:     &pod{Name: "p\n"},
	}
	got := sanitize.Clean(dirty)
	want := pod{
		Name: strings.Repeat("n", 256-len("…(cut, 300 bytes)")) + "…(cut, 300 bytes)", ID: "id ", At: time.Unix(5, 0), private: "\x1b",
		Labels:     map[string]string{"a ": "b "},
		Containers: []pod{{Name: "fine"}, {Name: "c?"}},
		Parent:     &pod{Name: "p "},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Clean() = %+v, want %+v", got, want)
	}
	if dirty.ID != "id\n" || dirty.Labels["a\n"] != "b\n" || dirty.Containers[1].Name != "c\x1b" || dirty.Parent.Name != "p\n" {
		t.Errorf("Clean() changed what it was given: %+v", dirty)
	}
}

func TestCleanLeavesWhatIsClean(t *testing.T) {
	clean := []pod{{Name: "web", Labels: map[string]string{"app": "web"}, Containers: []pod{{Name: "c"}}, Parent: &pod{}}}
	got := sanitize.Clean(clean)
	if &got[0] != &clean[0] {
		t.Error("Clean() copied a list that is clean")
	}
	if allocs := testing.AllocsPerRun(10, func() { sanitize.Clean(clean) }); allocs > 30 {
		t.Errorf("Clean() of a clean pod makes %v allocations, want few", allocs)
	}
}

func TestLabelsAreBounded(t *testing.T) {
	labels := map[string]string{"hostler.io/keep": "true", "z": strings.Repeat("z", 9<<20), "tier": "db", "io.kubernetes.pod.uid": "4711"}
	for i := range 100 {
		labels[fmt.Sprintf("label-%03d", i)] = strings.Repeat("x", 4000)
	}
	got := sanitize.Clean(labels)
	total := 0
	for k, v := range got {
		total += len(k) + len(v)
	}
	if total > 16<<10 {
		t.Errorf("labels of 9 MB have %d bytes, want at most 16 KiB", total)
	}
	if got["hostler.io/keep"] != "true" || got["tier"] != "db" || got["io.kubernetes.pod.uid"] != "4711" {
		t.Error("a label that hostler or an operator uses was dropped")
	}
	if !strings.Contains(got[sanitize.DroppedKey], " entries, ") {
		t.Errorf("labels do not say what was left out: %v", slices.Sorted(maps.Keys(got)))
	}
	if _, changed := sanitize.Labels(got, 16<<10); changed {
		t.Error("Labels() changed labels that are clean")
	}
}

// The rules of the configuration may read any label.
func TestLabelsOfOnePodLeaveThoseOfOthers(t *testing.T) {
	pods := make([]pod, 1000)
	for i := range pods[1:] {
		pods[i].Labels = map[string]string{}
		for j := range 20 {
			pods[i].Labels[strconv.Itoa(j)] = strings.Repeat("x", 4000)
		}
	}
	pods[999].Labels = map[string]string{"app": "db"}
	clean := sanitize.Clean(pods)
	if got := clean[999].Labels; got["app"] != "db" {
		t.Errorf("Clean() of a pod after many with large labels has labels %v, want those that it had", got)
	}
	total := 0
	for _, p := range clean {
		for k, v := range p.Labels {
			total += len(k) + len(v)
		}
	}
	if total > 16<<20 {
		t.Errorf("labels of 1000 pods have %d bytes, want at most 16 MiB", total)
	}
}

// An image's author can add keys to those of a container, and must not push out those that were set
// on it.
func TestKeysThatHostlerReadsAreKept(t *testing.T) {
	keys := keysOf(t, "../../runtime", "../../gc", "../../status/pods")
	if len(keys) < 20 {
		t.Fatalf("found %d keys in the source, want all", len(keys))
	}
	keys = append(keys, "image", "imageID") // attributes of Docker's events, among which the labels are
	labels := map[string]string{}
	for _, key := range keys {
		labels[key] = "some value"
		for i := range 1000 {
			labels[fmt.Sprintf("%s.%d", key, i)] = ""
		}
	}
	clean := sanitize.Clean(labels)
	for _, key := range keys {
		if clean[key] != "some value" {
			t.Errorf("Clean() dropped %s, which hostler reads", key)
		}
	}
}

// keysOf returns the values of constants of labels and annotations in folders of the source.
func keysOf(t *testing.T, folders ...string) (keys []string) {
	t.Helper()
	constant := regexp.MustCompile(`\b(?i:label|annotation)[A-Z]\w* *= "([a-zA-Z][^"]*\w)"`)
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "runtimetest") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
				if strings.Contains(m[1], "containerd") { // read from records of containerd
					continue
				}
				keys = append(keys, m[1])
			}
			return err
		})
		if err != nil {
			t.Fatalf("read the source: %v", err)
		}
	}
	return keys
}

func TestANodeStaysAsItIs(t *testing.T) {
	node := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{"a": "b"}, CreationTimestamp: metav1.Unix(5, 0)},
		Status:     corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": resource.MustParse("2")}},
	}
	got := sanitize.Clean(node)
	if got.Name != "web-1" || got.CreationTimestamp != metav1.Unix(5, 0) || got.Status.Capacity.Cpu().Value() != 2 {
		t.Errorf("Clean() = %+v, want it as it was", got)
	}
	node.Labels["c"] = "d\x1b"
	got = sanitize.Clean(node)
	if got.Labels["c"] != "d?" || got.CreationTimestamp != metav1.Unix(5, 0) || got.Status.Capacity.Cpu().Value() != 2 {
		t.Errorf("Clean() = %+v, want it as it was but for the label", got)
	}
}
