package docker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
)

const (
	// sharedVersion is the first version of the API that reports shared sizes in lists
	// of images. Before, they come with the whole of `docker system df`, for which
	// Docker walks through all volumes.
	sharedVersion = "1.42"
	// sizesBackoff is how long Docker is not asked again for sizes that cost it much.
	sizesBackoff = 10 * time.Minute
	// sizesPause is the same after it did not answer in time.
	sizesPause = time.Hour
)

var _ runtime.ImageDetailer = (*Runtime)(nil)

// sizes are what images share with others.
type sizes struct {
	turn chan struct{} // held while they are requested

	mu     sync.Mutex        // guards what follows
	shared map[string]uint64 // by image ID, of the images that there were when asked
	notYet time.Time         // when they may be requested again
}

// DetailedImages is Images with what each shares with others, as far as that is known:
// it is requested when images have come or gone, in half of the time that there is, and
// where that makes Docker walk through all that it has, every ten minutes at most, and by
// no one in a hurry.
func (r *Runtime) DetailedImages(ctx context.Context) ([]runtime.Image, error) {
	list, err := r.Images(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case r.sizes.turn <- struct{}{}:
		if r.sizes.outdated(list) {
			r.querySizes(ctx)
		}
		<-r.sizes.turn
	default: // another client asks, and what is known will do until then
	}
	r.sizes.fill(list)
	return sanitize.Clean(list), nil
}

// outdated reports whether images have come or gone, so that those that stay share with
// others, and Docker may be asked.
func (s *sizes) outdated(list []runtime.Image) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.notYet) {
		return false
	}
	if len(s.shared) != len(list) {
		return true
	}
	for i := range list {
		if _, known := s.shared[list[i].ID]; !known {
			return true
		}
	}
	return false
}

// fill writes what is known into a list. Of images that have come or gone since, what
// the others share may be another size now: these are estimates in any case.
func (s *sizes) fill(list []runtime.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		shared, known := s.shared[list[i].ID]
		list[i].SharedBytes, list[i].SharedKnown = min(shared, list[i].SizeBytes), known
	}
}

// errNoTime says that there is no time for what costs Docker much.
var errNoTime = errors.New("no time left to query sizes")

// querySizes asks Docker for them. Without them whole sizes count.
func (r *Runtime) querySizes(ctx context.Context) {
	limit := r.timeouts.Query
	if end, bounded := ctx.Deadline(); bounded {
		limit = min(limit, time.Until(end)/2)
	}
	costly, hurried := false, limit < r.timeouts.Query
	shared, err := engine.Get(ctx, r.conn, "SharedSizes", "list shared sizes of images", limit, func(ctx context.Context, c *client.Client) (map[string]uint64, error) {
		costly = !supports(c, sharedVersion)
		if costly && hurried {
			return nil, errNoTime
		}
		if costly {
			df, err := c.DiskUsage(ctx, client.DiskUsageOptions{Images: true, Verbose: true})
			shared := make(map[string]uint64, len(df.Images.Items))
			for _, img := range df.Images.Items {
				shared[img.ID] = uint64(max(img.SharedSize, 0))
			}
			return shared, err
		}
		list, err := c.ImageList(ctx, client.ImageListOptions{SharedSize: true})
		shared := make(map[string]uint64, len(list.Items))
		for _, img := range list.Items {
			shared[img.ID] = uint64(max(img.SharedSize, 0))
		}
		return shared, err
	})
	r.sizes.mu.Lock()
	defer r.sizes.mu.Unlock()
	switch {
	case err != nil && ctx.Err() == nil && !hurried:
		r.log.Debug("cannot read shared sizes of images", "error", err)
		r.sizes.notYet = time.Now().Add(sizesPause)
		return
	case err != nil: // that says nothing of Docker
		return
	case costly:
		r.sizes.notYet = time.Now().Add(sizesBackoff)
	}
	r.sizes.shared = shared
}

// supports reports whether the daemon speaks a version of the API or a later one.
func supports(c *client.Client, version string) bool {
	return versions.GreaterThanOrEqualTo(c.ClientVersion(), version)
}
