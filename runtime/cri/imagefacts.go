package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri/containerd"
	"hostler.io/hostler/runtime/local"
)

const (
	// labelPrefix begins the labels of images that are kept. Others are dropped.
	labelPrefix = "hostler.io/"
	// fewImages is up to how many images are requested from containerd by name.
	fewImages = 32
	// labelAttempts is after how many failed attempts an image counts as having no labels. A fault
	// may be temporary, but a damaged image stays damaged.
	labelAttempts = 10
)

var _ runtime.ImageDetailer = (*Runtime)(nil)

// imageFact has what a list of images lacks.
type imageFact struct {
	id           string            // from the first list, so that all lists share its memory
	createdNanos int64             // in nanoseconds since 1970; 0 if unknown
	labels       map[string]string // from the image's configuration, which never changes for an ID
	timed        bool              // createdNanos is known
	read         bool              // labels are known
	seen         bool              // the image is in the list that is being completed
	failed       uint8             // consecutive lists for which the labels could not be read
	hungAt       time.Time         // when a request for the labels was last not answered
}

// imageFacts has the facts about the images of the last list.
type imageFacts struct {
	turn  chan struct{} // held while facts are used
	byID  map[string]imageFact
	dials uint64 // the connection on which the times were requested
}

// DetailedImages lists the images with the labels of their configuration, which take one call for
// each new image. For containerd it adds the labels and creation times of the records. If the
// labels take more than half of the available time, later lists read the rest.
func (r *Runtime) DetailedImages(ctx context.Context) ([]runtime.Image, error) {
	list, err := r.Images(ctx)
	if err != nil {
		return nil, err
	}
	const what = "list details of images"
	f := &r.imageFacts
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: wait for another list: %w", what, context.Cause(ctx))
	}
	f.begin(list, r.dials.Load())
	f.queryLabels(ctx, r, list)
	if err := f.queryTimes(ctx, r, list); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	f.fill(list)
	if err := r.recordLabels(ctx, list); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return sanitize.Clean(list), nil
}

// begin removes facts about images that are not in a list.
func (f *imageFacts) begin(list []runtime.Image, dials uint64) {
	for _, img := range list {
		fact := f.byID[img.ID]
		if fact.id == "" {
			fact.id = img.ID
		}
		// Without a connection, a pull may have been missed.
		fact.timed = fact.timed && f.dials == dials
		fact.seen = true
		f.byID[fact.id] = fact
	}
	f.dials = dials
	for id, fact := range f.byID {
		if !fact.seen {
			delete(f.byID, id)
			continue
		}
		fact.seen = false
		f.byID[id] = fact
	}
}

// fill copies the known facts into a list.
func (f *imageFacts) fill(list []runtime.Image) {
	now := time.Now()
	for i := range list {
		fact := f.byID[list[i].ID]
		list[i].ID = fact.id
		list[i].Labels, list[i].LabelsUnknown = fact.labels, !fact.read
		// If the clock was ahead when the image was created, the time is useless.
		if createdNanos := time.Unix(0, fact.createdNanos); fact.createdNanos != 0 && !createdNanos.After(now) {
			list[i].CreatedAt = createdNanos
		}
	}
}

// queryLabels reads the configuration of new images. It gives up as soon as the runtime stops
// answering. Images whose last request was not answered come last. An image that cannot be read for
// several lists counts as having no labels.
func (f *imageFacts) queryLabels(ctx context.Context, r *Runtime, list []runtime.Image) {
	limit := r.timeouts.Query
	if end, bounded := ctx.Deadline(); bounded {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(factsAtOnce)
	answers := make([]*imageFact, len(list))
	var ask []int // indexes
	for i := range list {
		if !f.byID[list[i].ID].read {
			ask = append(ask, i)
		}
	}
	slices.SortStableFunc(ask, func(a, b int) int { return f.byID[list[a].ID].hungAt.Compare(f.byID[list[b].ID].hungAt) })
	for _, i := range ask {
		fact := f.byID[list[i].ID]
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil // a call that is not made does not count as hung
			}
			answers[i] = &fact
			labels, err := r.imageLabels(ctx, &list[i])
			if err != nil && (errors.Is(err, runtime.ErrUnavailable) || ctx.Err() != nil) {
				fact.hungAt = time.Now()
				return err
			}
			if err != nil {
				r.log.Debug("cannot read labels of image", "image", list[i].Names()[0], "id", list[i].ID, "error", err)
				fact.failed++
			}
			fact.labels, fact.read = labels, err == nil || fact.failed >= labelAttempts
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		r.log.Debug("stopped reading labels of images", "error", err)
	}
	for _, fact := range answers {
		if fact != nil {
			f.byID[fact.id] = *fact
		}
	}
}

// imageLabels returns hostler's labels from an image's configuration. They are bounded, because they
// stay in memory as long as the image exists.
func (r *Runtime) imageLabels(ctx context.Context, img *runtime.Image) (map[string]string, error) {
	config, err := r.imageConfig(ctx, img.ID, img.Names()[0])
	return sanitize.Clean(config.labels()), err
}

var _ runtime.StopSignaler = (*Runtime)(nil)

// StopSignal returns the stop signal from an image's configuration. CRI does not report it for
// images, and for containers only since Kubernetes 1.33.
func (r *Runtime) StopSignal(ctx context.Context, imageID string) (string, error) {
	config, err := r.imageConfig(ctx, imageID, imageID)
	return sanitize.Text(config.StopSignal, sanitize.MaxName), err
}

// imageConfig is the part of an image's configuration that hostler reads.
type imageConfig struct {
	Labels     map[string]string
	StopSignal string
}

// imageConfig requests the configuration of an image. It is in the verbose part of containerd's and
// CRI-O's image status, which CRI does not specify. For other runtimes it is empty.
func (r *Runtime) imageConfig(ctx context.Context, id, name string) (imageConfig, error) {
	var resp *criapi.ImageStatusResponse
	err := r.call(ctx, "ImageStatus", "get status of "+local.Named("image", name, ""), r.timeouts.Query,
		func(ctx context.Context) (err error) {
			resp, err = r.image.ImageStatus(ctx, &criapi.ImageStatusRequest{Image: &criapi.ImageSpec{Image: id}, Verbose: true})
			return err
		})
	if err != nil {
		return imageConfig{}, err
	}
	var verbose struct {
		ImageSpec struct{ Config imageConfig } `json:"imageSpec"`
	}
	if err := json.Unmarshal([]byte(resp.GetInfo()["info"]), &verbose); err != nil {
		return imageConfig{}, nil
	}
	return verbose.ImageSpec.Config, nil
}

// labels returns hostler's labels.
func (c imageConfig) labels() map[string]string {
	var labels map[string]string
	for key, value := range c.Labels {
		if strings.HasPrefix(key, labelPrefix) {
			if labels == nil {
				labels = make(map[string]string)
			}
			labels[key] = value
		}
	}
	return labels
}

// queryTimes requests the creation times of new images or, on a new connection, of all images. Only
// containerd has them.
func (f *imageFacts) queryTimes(ctx context.Context, r *Runtime, list []runtime.Image) error {
	names := map[string]string{} // name to ID
	var filters []string
	unknown := 0
	for _, img := range list {
		fact := f.byID[img.ID]
		if fact.timed {
			continue
		}
		unknown++
		for _, name := range append([]string{fact.id}, img.Tags...) {
			names[name] = fact.id
			if unknown <= fewImages {
				filters = append(filters, containerd.Equals("name", name))
			}
		}
	}
	if unknown == 0 {
		return nil
	}
	if unknown > fewImages {
		// Tags and IDs. The records by digest would double the list and add nothing.
		filters = []string{`name~="/[^@/]*$"`, `name~="^sha256:"`}
	}
	records, err := r.records(ctx, filters...)
	if err != nil && !errors.Is(err, runtime.ErrUnsupported) && !errors.Is(err, runtime.ErrTooLarge) {
		return err
	}
	for _, id := range names {
		fact := f.byID[id]
		fact.timed, fact.createdNanos = true, 0
		f.byID[id] = fact
	}
	for _, record := range records {
		fact, known := f.byID[names[record.GetName()]]
		if !known {
			continue
		}
		for _, at := range []interface{ AsTime() time.Time }{record.GetCreatedAt(), record.GetUpdatedAt()} {
			fact.createdNanos = max(fact.createdNanos, at.AsTime().UnixNano())
		}
		f.byID[fact.id] = fact
	}
	return nil
}

// labelPinned is containerd's label of a pinned image, with value "pinned". CRI reports it from containerd 1.7
// on.
const labelPinned = "io.cri-containerd.pinned"

// protection is what labels of an image record say.
type protection struct {
	keep   string // the value of runtime.LabelKeep; empty for none
	pinned bool
}

// protectionOf reads the labels of an image record. "false" does not override a label of the image itself.
func protectionOf(labels map[string]string) protection {
	p := protection{keep: labels[runtime.LabelKeep], pinned: labels[labelPinned] == "pinned"}
	if p.keep == "false" {
		p.keep = ""
	}
	return p
}

// and returns the protection by both.
func (p protection) and(o protection) protection {
	return protection{keep: cmp.Or(p.keep, o.keep), pinned: p.pinned || o.pinned}
}

// recordLabels adds labels that were set on the image record, as with `ctr --namespace k8s.io
// images label NAME hostler.io/keep=true`. They may change at any time, but are few.
func (r *Runtime) recordLabels(ctx context.Context, list []runtime.Image) error {
	records, err := r.records(ctx, fmt.Sprintf("labels.%q", runtime.LabelKeep), fmt.Sprintf("labels.%q", labelPinned))
	if err != nil && !errors.Is(err, runtime.ErrUnsupported) {
		return err
	}
	byName, byDigest := map[string]protection{}, map[string]protection{}
	for _, record := range records {
		if p := protectionOf(record.GetLabels()); p != (protection{}) {
			digest := record.GetTarget().GetDigest()
			byName[withRegistry(record.GetName())], byDigest[digest] = p, p.and(byDigest[digest])
		}
	}
	if len(byDigest) == 0 {
		return nil
	}
	var filters []string
	for digest := range byDigest {
		filters = append(filters, containerd.Equals("target.digest", digest))
	}
	// A label on one name protects all names of the image. CRI may list another name.
	siblings, err := r.records(ctx, filters...)
	if err != nil {
		return err
	}
	for _, record := range siblings {
		name := record.GetName()
		if !strings.HasPrefix(name, "sha256:") {
			name = withRegistry(name)
		}
		byName[name] = byName[name].and(byDigest[record.GetTarget().GetDigest()])
	}
	for i := range list {
		img := &list[i]
		var p protection
		for _, name := range append(img.Names(), img.ID) {
			p = p.and(byName[name])
		}
		img.Pinned = img.Pinned || p.pinned
		if p.keep == "" {
			continue
		}
		img.Labels = maps.Clone(img.Labels) // the fact shares this map, but has no labels of records
		if img.Labels == nil {
			img.Labels = make(map[string]string, 1)
		}
		img.Labels[runtime.LabelKeep] = p.keep
	}
	return nil
}
