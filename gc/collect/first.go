package collect

import (
	"context"

	"hostler.io/hostler/gc/runs"
)

// ContainersFirst has automatic runs of images that are short of room collect dead
// containers before they look for images, by the rules of containers, as long as
// mine says that these are hostler's: dead containers hold images. What a person
// asks for goes by what that person asked for. It is called before Run and Collect.
func (c *Images) ContainersFirst(containers *Containers, mine func() bool) {
	c.before = func(ctx context.Context, report *runs.Report, progress func(runs.Progress)) bool {
		return report.Trigger != runs.TriggerRequest && mine() && containers.first(ctx, report, progress)
	}
}
