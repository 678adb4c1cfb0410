package gc_test

import (
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// The plan of a requested run says which objects automatic runs do not remove. The decisions are
// the same.
func TestPlanExplainsWhatOnlyARequestRemoves(t *testing.T) {
	dead := podWith("dead", exited("old", "web", 5*time.Hour), exited("last", "web", time.Hour))
	dead.Ready = false
	live := podWith("live", exited("job", "job", 30*time.Minute), runtime.Container{ID: "main", Name: "main", PodID: "live", Runtime: "containerd", State: runtime.Running})
	policy := gc.DefaultPolicy()
	reasons := func(o gc.Options) (list []string) {
		d := gc.Plan(gc.Facts{Images: []gc.ImageFact{fact("a", 90*time.Hour)}, Pods: []runtime.Pod{dead, live}, Filesystems: []gc.Usage{disk(500, 0)}}, policy, now, o)
		for _, c := range d.Containers {
			list = append(list, c.ID+" "+string(c.Action)+" "+string(c.Reason)+" "+c.Detail)
		}
		for _, img := range d.Images {
			list = append(list, img.Names[0]+" "+string(img.Action)+" "+string(img.Reason)+" "+img.Detail)
		}
		return list
	}
	names := []string{"containerd"}
	for _, c := range []struct {
		name    string
		options gc.Options
		want    []string
	}{
		{"automatic runs remove them", gc.Options{}, []string{"old remove over-limit ", "last keep newest ", "job keep newest ", "main keep running ", "quay.io/org/a:1 keep below-threshold "}},
		{"automatic runs remove neither", gc.Options{RequestImages: names, RequestContainers: names}, []string{
			"old remove over-limit removed on request only", "last keep not-managed removed on request only", "job keep newest ", "main keep running ",
			"quay.io/org/a:1 keep below-threshold removed on request only",
		}},
		{"all unused is a request", gc.Options{AllUnused: true, RequestImages: names, RequestContainers: names}, []string{
			"old remove all-unused ", "last remove all-unused ", "job keep newest ", "main keep running ", "quay.io/org/a:1 remove all-unused ",
		}},
	} {
		if got := reasons(c.options); !slices.Equal(got, c.want) {
			t.Errorf("%s: Plan() = %q, want %q", c.name, got, c.want)
		}
	}
}
