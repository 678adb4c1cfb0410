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
	// sharedVersion is the first API version that reports shared sizes in lists of images. Before,
	// only `docker system df` reports them, for which Docker walks through all volumes.
	sharedVersion = "1.42"
	// sizesBackoff is the pause after a costly request for sizes.
	sizesBackoff = 10 * time.Minute
	// sizesPause is the pause after a request that timed out.
	sizesPause = time.Hour
)

var _ runtime.ImageDetailer = (*Runtime)(nil)

// sizes has the bytes that each image shares with others.
type sizes struct {
	turn chan struct{} // held during a request

	mu        sync.Mutex        // guards the fields below
	shared    map[string]uint64 // by image ID, for the images at the last request
	notBefore time.Time         // time of the next request
}

// DetailedImages is Images with the bytes that each image shares with others, if known. It requests
// them after images were added or removed, within half of the available time. If the request is
// costly for Docker, it is sent at most every ten minutes, and not by callers with little time.
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
	default: // another caller requests sizes; the known ones are good enough
	}
	r.sizes.fill(list)
	return sanitize.Clean(list), nil
}

// outdated reports whether images were added or removed, so that shared sizes may have changed, and
// whether a request is allowed.
func (s *sizes) outdated(list []runtime.Image) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.notBefore) {
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

// fill copies the known sizes into a list. If images were added or removed since, the sizes of
// others may have changed; they are estimates anyway.
func (s *sizes) fill(list []runtime.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		shared, known := s.shared[list[i].ID]
		list[i].SharedBytes, list[i].SharedKnown = min(shared, list[i].SizeBytes), known
	}
}

// errNoTime means that there is not enough time for a costly request.
var errNoTime = errors.New("no time left to query sizes")

// querySizes requests shared sizes from Docker. Without them, full sizes count.
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
		r.sizes.notBefore = time.Now().Add(sizesPause)
		return
	case err != nil: // does not mean that Docker is slow
		return
	case costly:
		r.sizes.notBefore = time.Now().Add(sizesBackoff)
	}
	r.sizes.shared = shared
}

// supports reports whether the daemon has an API version or a later one.
func supports(c *client.Client, version string) bool {
	return versions.GreaterThanOrEqualTo(c.ClientVersion(), version)
}
