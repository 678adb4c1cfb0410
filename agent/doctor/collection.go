package doctor

import (
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/gc"
)

// OnRequest says what hostler removes only if a person requests it. That concerns runtimes with which
// people build images and keep stopped containers.
type OnRequest struct {
	Runtimes []string `json:"runtimes"`
	// Unused is how many images or dead containers `hostler gc run --all-unused` would remove now.
	Unused int `json:"unused"`
	// Bytes estimates the size of these images, without what they share with other images.
	Bytes uint64 `json:"bytes,omitempty"`
	// Full lists the filesystems above the high threshold, where hostler does not remove these images
	// or containers.
	Full []string `json:"full,omitempty"`
	// Setting is the configuration that makes hostler remove them automatically.
	Setting string `json:"setting"`
}

// Describe returns number and size, such as "3 unused images of 2 GiB"; what is the singular, such as
// "image".
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

// Covers reports whether all these runtimes, which share a filesystem, are collected on request only. It
// is false for nil.
func (r *OnRequest) Covers(runtimes []string) bool {
	return r != nil && !slices.ContainsFunc(runtimes, func(name string) bool { return !slices.Contains(r.Runtimes, name) })
}

// RuntimeNames lists the runtimes, such as "docker and podman".
func (r OnRequest) RuntimeNames() string {
	last := len(r.Runtimes) - 1
	if last < 1 {
		return strings.Join(r.Runtimes, "")
	}
	return strings.Join(r.Runtimes[:last], ", ") + " and " + r.Runtimes[last]
}

// Collection says what is removed on request only; nil for nothing.
type Collection struct{ Images, Containers *OnRequest }

// collection reports the images and containers that are removed on request only.
func collection(f Facts) Check {
	var waiting, full []string
	var settings []setting
	whose, idle := "", false
	for _, job := range []struct {
		what string
		on   *OnRequest
		key  string
	}{{"image", f.Collection.Images, "imageGC.enabled"}, {"dead container", f.Collection.Containers, "containerGC.enabled"}} {
		switch {
		case job.on == nil:
		case job.on.Unused == 0:
			idle, whose = true, job.on.RuntimeNames()
		default:
			waiting, settings = append(waiting, job.on.Describe(job.what)), append(settings, setting{job.key, job.on.Setting})
			whose, full = job.on.RuntimeNames(), append(full, job.on.Full...)
		}
	}
	switch {
	case len(waiting) == 0 && idle:
		return ok("no automatic collection for %s; nothing to remove on request", whose)
	case len(waiting) == 0:
		return Check{}
	}
	message := fmt.Sprintf("no automatic collection for %s; removable on request: %s", whose, strings.Join(waiting, " and "))
	fix := fmt.Sprintf("show them with `hostler gc plan --all-unused`, remove them with `hostler gc run --all-unused`. For automatic collection, set %s and run `systemctl restart hostler`",
		f.Configuration.places(settings))
	if len(full) > 0 {
		return warn(fix, "%s is above the high threshold, and %s", strings.Join(full, " and "), message)
	}
	return ok("%s; %s", message, fix)
}
