package cli

import (
	"strings"

	"hostler.io/hostler/agent/api"
)

// onRequest returns what is removed only on request, and which key changes that.
func onRequest(s api.Status) string {
	var waiting, settings []string
	var names string
	for _, job := range []struct {
		owner, what string
		on          *api.OnRequest
	}{{"imageGC", "image", s.ImageGC.OnRequest}, {"containerGC", "dead container", s.ContainerGC.OnRequest}} {
		if job.on != nil && job.on.Unused > 0 && mine(s, job.owner) {
			waiting, settings = append(waiting, job.on.Describe(job.what)), append(settings, job.on.Setting)
			names = job.on.RuntimeNames()
		}
	}
	if len(waiting) == 0 {
		return ""
	}
	return strings.Join(waiting, ", ") + " of " + names + "; to remove them, run `hostler gc run --all-unused`, or set " + strings.Join(settings, " and ") + " in the configuration"
}
