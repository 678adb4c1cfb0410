// Package survey gathers the facts for plans of garbage collection: the images and containers of
// the runtimes, what uses them, and how full their filesystems are.
//
// It owns the queries, their order and their deadlines. If any query of a runtime fails, the facts
// have nothing of it.
package survey

import (
	"context"
	"errors"
	"sync"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/fruitless"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/runtime"
)

// Timeout bounds one query to a runtime or a filesystem.
const Timeout = 30 * time.Second

// Runtime is the part of a container runtime that surveys and collectors need.
type Runtime interface {
	// Name is the runtime's name in its lists.
	Name() string
	runtime.Informer
	runtime.PodLister
	runtime.ImageLister
	runtime.FilesystemLister
	runtime.ImageRemover
	runtime.Stopper
	runtime.ContainerRemover
	runtime.PodRemover
}

// Logs finds and removes the logs that pods leave on the host, like podlogs.Host.
type Logs interface {
	Find(ctx context.Context, known func(uid string) bool) ([]gc.LogFact, error)
	Remove(ctx context.Context, log gc.LogFact) error
}

// Survey gathers facts. It is safe for concurrent use. Its fields must not change.
type Survey struct {
	Runtimes func() []Runtime // current runtimes of this host
	Meter    Meter
	Uses     *lastused.Tracker
	// Fruitless has the filesystems on which removals freed nothing; nil if not needed.
	Fruitless *fruitless.Memory
	// Protected returns the pods whose containers and logs are kept because a shutdown or a drain
	// ended them. It returns the reasons by pod ID, and by UID for their logs. Nil if there are
	// none.
	Protected func() (pods map[gc.PodKey]gc.Kept, logs map[string]gc.Kept)

	// Logs has the logs of the host's pods; nil if logs are not collected.
	Logs Logs
	// Unseen returns why there may be pods on this host that no runtime lists; empty if there are
	// none. It may be nil.
	Unseen func() string
	// Kubelet reports whether a kubelet runs on this host; nil if none ever does.
	Kubelet func() bool
}

// Facts queries all runtimes in parallel for what the options need. The error joins a
// runtime.MemberError for each runtime that failed. The facts of the other runtimes are complete.
func (s *Survey) Facts(ctx context.Context, o gc.Options) (gc.Facts, error) {
	f, failed := s.Scan(ctx, o)
	errs := make([]error, len(failed))
	for i, e := range failed {
		errs[i] = e
	}
	return f, errors.Join(errs...)
}

// listing is the answer of one runtime.
type listing struct {
	images      []gc.ImageFact
	pods        []runtime.Pod
	filesystems []gc.Usage
	sandbox     string
	err         error
}

// Scan is Facts, and returns the failed runtimes as a list.
func (s *Survey) Scan(ctx context.Context, o gc.Options) (gc.Facts, []runtime.MemberError) {
	runtimes := s.Runtimes()
	glimpses := make([]listing, len(runtimes))
	var wg sync.WaitGroup
	for i, rt := range runtimes {
		wg.Go(func() { glimpses[i] = s.ask(ctx, rt, o) })
	}
	wg.Wait()

	f := gc.Facts{SandboxImages: make(map[string]string), Fruitless: s.Fruitless.Records()}
	var failed []runtime.MemberError
	for i, g := range glimpses {
		if g.err != nil {
			failed = append(failed, runtime.MemberError{Runtime: runtimes[i].Name(), Err: g.err})
			continue
		}
		f.Images = append(f.Images, g.images...)
		f.Pods = append(f.Pods, g.pods...)
		f.Filesystems = append(f.Filesystems, g.filesystems...)
		f.SandboxImages[runtimes[i].Name()] = g.sandbox
	}
	oneName(f.Filesystems)
	if s.Protected != nil {
		f.ProtectedPods, f.ProtectedLogs = s.Protected()
	}
	f.Kubelet = s.Kubelet != nil && s.Kubelet()
	if o.WantContainers() && s.Logs != nil {
		s.findLogs(ctx, &f, failed)
	}
	return f, failed
}

// findLogs adds the logs of pods that no runtime lists, and why the lists of pods may be incomplete.
// Logs that cannot be read are kept: a later run may remove them.
func (s *Survey) findLogs(ctx context.Context, f *gc.Facts, failed []runtime.MemberError) {
	switch {
	case len(failed) > 0:
		f.LogsUnsure = "runtime " + failed[0].Runtime + " does not list its pods"
	case len(f.SandboxImages) == 0:
		f.LogsUnsure = "no runtime that lists pods was found"
	case f.Kubelet:
		f.LogsUnsure = "the kubelet may restart the pod"
	case s.Unseen != nil:
		f.LogsUnsure = s.Unseen()
	}
	uids := make(map[string]bool, len(f.Pods))
	for i := range f.Pods {
		uids[f.Pods[i].UID] = true
	}
	f.Logs, f.LogsErr = s.Logs.Find(ctx, func(uid string) bool { return uids[uid] })
}

// ask queries one runtime. Images come before pods, so that a container that is created in between
// shows that its image is in use.
func (s *Survey) ask(ctx context.Context, rt Runtime, o gc.Options) (g listing) {
	var images []runtime.Image
	if o.WantImages() {
		info, err := runtime.Within(ctx, Timeout, rt.Info)
		if err != nil {
			return listing{err: err}
		}
		g.sandbox = info.SandboxImage
		images, err = runtime.Within(ctx, Timeout, func(ctx context.Context) ([]runtime.Image, error) { return runtime.DetailedImages(ctx, rt) })
		if err != nil {
			return listing{err: err}
		}
	}
	var err error
	if g.pods, err = runtime.Within(ctx, Timeout, rt.Pods); err != nil {
		return listing{err: err}
	}
	if !o.WantImages() {
		return g
	}
	others, err := otherUsers(ctx, rt)
	if err != nil {
		return listing{err: err}
	}
	if g.filesystems, err = s.Usages(ctx, rt); err != nil {
		return listing{err: err}
	}
	s.Uses.Observe(rt.Name(), g.pods, images)
	g.images = make([]gc.ImageFact, len(images))
	for i, img := range images {
		use := s.Uses.Use(img.Runtime, img.ID)
		g.images[i] = gc.ImageFact{Image: img, FirstSeen: use.FirstSeen, LastUsed: use.LastUsed}
		if len(others) > 0 {
			g.images[i].UsedBy = others.of(gc.References(nil, &img))
		}
	}
	return g
}

// Usages measures the image filesystems of a runtime. If a measurement fails, the Usage has the
// error. If the runtime does not report its filesystems, Usages returns an error.
func (s *Survey) Usages(ctx context.Context, rt Runtime) ([]gc.Usage, error) {
	filesystems, err := runtime.Within(ctx, Timeout, rt.ImageFilesystems)
	if err != nil {
		return nil, err
	}
	usages := make([]gc.Usage, len(filesystems))
	for i, fs := range filesystems {
		usages[i] = s.measure(ctx, fs)
		usages[i].Runtime = rt.Name()
	}
	return usages, nil
}

// oneName gives each filesystem one name, even if runtimes see it at several mount points. What is
// freed there is free for all, so it must be requested only once.
func oneName(usages []gc.Usage) {
	first := make(map[string]*gc.Usage, len(usages))
	for i := range usages {
		u := &usages[i]
		if u.ID == "" {
			continue
		}
		if same := first[u.ID]; same != nil {
			u.Mountpoint, u.Device = same.Mountpoint, same.Device
		} else {
			first[u.ID] = u
		}
	}
}

func (s *Survey) measure(ctx context.Context, fs runtime.Filesystem) gc.Usage {
	u, err := runtime.Within(ctx, Timeout, func(ctx context.Context) (gc.Usage, error) { return s.Meter.Usage(ctx, fs) })
	u.Filesystem, u.Err = fs, err
	return u
}
