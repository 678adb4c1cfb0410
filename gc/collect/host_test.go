package collect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

const mib = 1 << 20

// host is a runtime in memory with collectors.
type host struct {
	t       *testing.T
	fake    *runtimetest.Fake
	tracker *lastused.Tracker
	survey  *survey.Survey
	meter   *meter
	log     *logBuffer
	turn    runs.Turn
	arrived []time.Time // of the images from stock

	mu      sync.Mutex
	reports []runs.Report
}

// meter measures the filesystem of the Fake.
type meter struct {
	fake   *runtimetest.Fake
	mu     sync.Mutex
	change func(*gc.Usage)
	hang   bool
	syncs  int
}

func (m *meter) Usage(ctx context.Context, fs runtime.Filesystem) (gc.Usage, error) {
	m.mu.Lock()
	change, hang := m.change, m.hang
	m.mu.Unlock()
	if hang {
		<-ctx.Done()
		return gc.Usage{}, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return gc.Usage{}, err
	}
	u := m.fake.Usage()
	usage := gc.Usage{Filesystem: fs, CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes, Inodes: u.Inodes, InodesFree: u.InodesFree}
	if change != nil {
		change(&usage)
	}
	return usage, nil
}

func (m *meter) Sync(context.Context, runtime.Filesystem) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.syncs++
	return nil
}

// store is a lastused.Store that stores nothing.
type store struct{}

func (store) Load(any)              {}
func (store) SaveLazily(func() any) {}

// logBuffer is a log that can be read during writes.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newHost(t *testing.T, options runtimetest.Options) *host {
	t.Helper()
	if options.CapacityBytes == 0 {
		options.CapacityBytes = 1000 * mib
	}
	options.Mountpoint, options.Device = "/var/lib/fake", "/dev/fake"
	h := &host{t: t, fake: runtimetest.NewFake(options), log: &logBuffer{}, turn: runs.NewTurn()}
	h.meter = &meter{fake: h.fake}
	tracker, err := lastused.New(lastused.Options{
		Store: store{}, Runtimes: func() []lastused.Runtime { return []lastused.Runtime{h.fake} }, Log: h.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	h.tracker = tracker
	h.survey = &survey.Survey{Runtimes: func() []survey.Runtime { return []survey.Runtime{h.fake} }, Meter: h.meter, Uses: tracker}
	return h
}

func (h *host) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func (h *host) options() runs.Options {
	return runs.Options{
		Survey: h.survey, Turn: h.turn, Interval: 5 * time.Minute, Log: h.logger(),
		Observe: func(r runs.Report) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.reports = append(h.reports, r)
		},
	}
}

// seen returns the reports of the finished runs.
func (h *host) seen() []runs.Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.reports)
}

func (h *host) images(change ...func(*gc.ImagePolicy)) *collect.Images {
	h.t.Helper()
	return h.imagesAfter(collect.First{}, change...)
}

// imagesAfter returns a collector of images with First.
func (h *host) imagesAfter(first collect.First, change ...func(*gc.ImagePolicy)) *collect.Images {
	h.t.Helper()
	p := gc.DefaultPolicy().Images
	for _, c := range change {
		c(&p)
	}
	images, err := collect.NewImages(p, first, h.options())
	if err != nil {
		h.t.Fatal(err)
	}
	return images
}

// pull adds an image of 100 MiB and waits an hour. So the first pull is the oldest, and no image is
// too young. It must run in a synctest bubble.
func (h *host) pull(name string, layers ...runtimetest.Layer) runtime.Image {
	h.t.Helper()
	if layers == nil {
		layers = []runtimetest.Layer{{ID: "layer " + name, Bytes: 100 * mib, Inodes: 1000}}
	}
	img := h.fake.AddImage(runtimetest.ImageSpec{
		ID: "sha256:" + name, Tags: []string{"quay.io/org/" + name + ":1"}, Digests: []string{"quay.io/org/" + name + "@sha256:" + name}, Layers: layers,
	})
	h.observe()
	time.Sleep(time.Hour)
	return img
}

// observe passes the current lists to the tracker.
func (h *host) observe() {
	h.t.Helper()
	pods, err1 := h.fake.Pods(h.t.Context())
	images, err2 := h.fake.Images(h.t.Context())
	if err := errors.Join(err1, err2); err != nil {
		h.t.Fatal(err)
	}
	h.tracker.Observe(h.fake.Name(), pods, images)
}

// fill sets the usage by other files, so that the filesystem is used to this percentage.
func (h *host) fill(percent uint64) {
	h.fake.SetOtherBytes(0)
	u := h.fake.Usage()
	h.fake.SetOtherBytes(u.CapacityBytes*percent/100 - (u.CapacityBytes - u.AvailableBytes))
}

func (h *host) collect(images *collect.Images, o gc.Options) runs.Report {
	h.t.Helper()
	report, err := images.Collect(h.t.Context(), o, nil)
	if err != nil {
		h.t.Fatalf("Collect() = %v, want no error", err)
	}
	return report
}

func removed(r runs.Report) []string {
	names := []string{}
	for _, removal := range r.Removed {
		names = append(names, fmt.Sprintf("%s %s", removal.ID[len("sha256:"):], removal.Reason))
	}
	return names
}
