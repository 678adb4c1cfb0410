package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// AddLayers adds the layers of images if a filesystem lacks space, from the runtimes that can list
// them. Otherwise an estimate of the gain is not worth the cost. The error names runtimes that did
// not answer; the whole sizes of their images count.
func (s *Survey) AddLayers(ctx context.Context, f *gc.Facts, p gc.ImagePolicy, o gc.Options) error {
	if !o.WantImages() || o.AllUnused {
		return nil
	}
	var wanted []string
	for _, fs := range gc.Filesystems(f.Filesystems, p, o) {
		if fs.Short() {
			wanted = append(wanted, fs.Runtimes...)
		}
	}
	var lock sync.Mutex // guards the variables below
	var errs []error
	var all []runtime.Layer
	var wg sync.WaitGroup
	for _, rt := range s.Runtimes() {
		lister, able := rt.(runtime.LayerLister)
		if !able || !slices.Contains(wanted, rt.Name()) {
			continue
		}
		wg.Go(func() {
			layers, err := runtime.Within(ctx, Timeout, lister.Layers)
			lock.Lock()
			defer lock.Unlock()
			all = append(all, layers...)
			if err != nil && !errors.Is(err, runtime.ErrUnsupported) {
				errs = append(errs, fmt.Errorf("runtime %s: %w", rt.Name(), err))
			}
		})
	}
	wg.Wait()
	f.Layers = all
	return errors.Join(errs...)
}
