package doctor

import (
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/gc"
)

// OnRequest is what a job leaves to a person, of runtimes where people build images and
// keep stopped containers.
type OnRequest struct {
	Runtimes []string `json:"runtimes"`
	// Unused is how many images or dead containers would go now, if a person asked for
	// all that nothing protects.
	Unused int `json:"unused"`
	// Bytes is how large such images are, of what no other image holds: an estimate.
	Bytes uint64 `json:"bytes,omitempty"`
	// Full are filesystems above the high threshold, of which hostler frees none of this.
	Full []string `json:"full,omitempty"`
	// Setting has hostler remove them by itself.
	Setting string `json:"setting"`
}

// Describe says it in words; what names the things, such as "image".
func (r OnRequest) Describe(what string) string {
	text := fmt.Sprintf("%d unused %s", r.Unused, what)
	if r.Unused != 1 {
		text += "s"
	}
	if r.Bytes > 0 {
		text += " of " + gc.Size(r.Bytes)
	}
	return text
}

// Only reports whether nothing of these runtimes, which share a filesystem, is removed unless a
// person requests it. Of nil it is not.
func (r *OnRequest) Only(runtimes []string) bool {
	return r != nil && !slices.ContainsFunc(runtimes, func(name string) bool { return !slices.Contains(r.Runtimes, name) })
}

// Whose names the runtimes in words.
func (r OnRequest) Whose() string {
	last := len(r.Runtimes) - 1
	if last < 1 {
		return strings.Join(r.Runtimes, "")
	}
	return strings.Join(r.Runtimes[:last], ", ") + " and " + r.Runtimes[last]
}

// Collection is what waits for a person; nil where nothing does.
type Collection struct{ Images, Containers *OnRequest }

// collection reports what is removed on request only.
func collection(f Facts) Check {
	var waiting, settings, full []string
	whose, idle := "", false
	for _, job := range []struct {
		what string
		on   *OnRequest
	}{{"image", f.Collection.Images}, {"dead container", f.Collection.Containers}} {
		switch {
		case job.on == nil:
		case job.on.Unused == 0:
			idle, whose = true, job.on.Whose()
		default:
			waiting, settings = append(waiting, job.on.Describe(job.what)), append(settings, job.on.Setting)
			whose, full = job.on.Whose(), append(full, job.on.Full...)
		}
	}
	switch {
	case len(waiting) == 0 && idle:
		return ok("no automatic collection for %s; nothing to remove on request", whose)
	case len(waiting) == 0:
		return Check{}
	}
	message := fmt.Sprintf("no automatic collection for %s; removable on request: %s", whose, strings.Join(waiting, " and "))
	fix := fmt.Sprintf("show them with `hostler gc plan --all-unused`, remove them with `hostler gc run --all-unused`. For automatic collection, set %s in %s and run `systemctl restart hostler`",
		strings.Join(settings, " and "), f.Configuration.path())
	if len(full) > 0 {
		return warn(fix, "%s is above the high threshold, and %s", strings.Join(full, " and "), message)
	}
	return ok("%s; %s", message, fix)
}
