package cli

import (
	"slices"
	"strings"

	"hostler.io/hostler/agent/api"
)

// onRequest says what is removed when a person asks for it only, and what switches that.
func onRequest(s api.Status) string {
	var waiting, settings, names []string
	for _, job := range []struct {
		owner, what string
		on          *api.OnRequest
	}{{"imageGC", "image", s.ImageGC.OnRequest}, {"containerGC", "dead container", s.ContainerGC.OnRequest}} {
		if job.on != nil && job.on.Unused > 0 && mine(s, job.owner) {
			waiting, settings = append(waiting, job.on.Describe(job.what)), append(settings, job.on.Setting)
			names = job.on.Runtimes
		}
	}
	if len(waiting) == 0 {
		return ""
	}
	return strings.Join(waiting, ", ") + " of " + strings.Join(names, " and ") + "; `hostler gc run --all-unused` removes it, and hostler by itself with " + strings.Join(settings, " and ")
}

// collectsByItself tells whether there is a runtime whose images need no request.
func collectsByItself(s api.Status) bool {
	on := s.ImageGC.OnRequest
	return on == nil || slices.ContainsFunc(s.Runtimes, func(r api.Runtime) bool { return r.Ready && !slices.Contains(on.Runtimes, r.Name) })
}
