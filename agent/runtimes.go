package agent

import (
	"slices"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// members are the runtimes of a set in the words of a room that uses them.
func members[R any](set *runtime.Set) []R {
	var list []R
	for _, m := range set.Members() {
		list = append(list, m.(R)) // a runtime.Runtime has all that rooms ask for
	}
	return list
}

// leftAlone names the runtimes of which a job removes nothing by itself: those where
// people build images and keep stopped containers, unless a person has switched the job
// on.
func (a *Agent) leftAlone(job config.Switch) []string {
	if job == config.On {
		return nil
	}
	return a.runtimes.OnRequest()
}

// collection is what doctor tells of it.
func (a *Agent) collection(facts gc.Facts) (c doctor.Collection) {
	if len(a.runtimes.OnRequest()) == 0 {
		return c
	}
	c.Images, c.Containers = a.onRequest(facts)
	if mine, _, _ := a.owners.Mine(owner.ImageGC); !mine {
		c.Images = nil
	}
	if mine, _, _ := a.owners.Mine(owner.ContainerGC); !mine {
		c.Containers = nil
	}
	return c
}

// onRequest says what of such runtimes would go if a person asked for it; nil where
// nothing waits for that.
func (a *Agent) onRequest(facts gc.Facts) (images, containers *doctor.OnRequest) {
	cfg, policy, now := a.config(), a.gcPolicy(), time.Now()
	if names := a.leftAlone(cfg.ImageGC.Enabled); len(names) > 0 && cfg.ImageGC.Enabled != config.Off {
		images = &doctor.OnRequest{Runtimes: names, Setting: "imageGC: {enabled: true}"}
		for _, d := range gc.Plan(facts, policy, now, gc.Options{Images: true, AllUnused: true}).Images {
			if d.Action == gc.Remove && slices.Contains(names, d.Runtime) {
				images.Unused++
				images.Bytes += d.Image.OwnBytes()
			}
		}
		for _, fs := range gc.Plan(facts, policy, now, gc.Options{Images: true}).Filesystems {
			if fs.Short() && slices.ContainsFunc(fs.Runtimes, func(name string) bool { return slices.Contains(names, name) }) {
				images.Full = append(images.Full, fs.Filesystem)
			}
		}
	}
	if names := a.leftAlone(cfg.ContainerGC.Enabled); len(names) > 0 && cfg.ContainerGC.Enabled != config.Off {
		containers = &doctor.OnRequest{Runtimes: names, Setting: "containerGC: {enabled: true, maximumAge: 168h}"}
		for _, d := range gc.Plan(facts, policy, now, gc.Options{Containers: true, AllUnused: true}).Containers {
			if d.Action == gc.Remove && slices.Contains(names, d.Runtime) && d.Container.State != runtime.Running {
				containers.Unused++
			}
		}
	}
	return images, containers
}
