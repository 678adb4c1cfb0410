package meter_test

import (
	"path/filepath"
	"testing"

	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/runtime"
)

func TestStatfs(t *testing.T) {
	var s meter.Statfs
	fs := runtime.Filesystem{Path: t.TempDir(), Mountpoint: "/nowhere"}
	u, err := s.Usage(t.Context(), fs)
	if err != nil || u.CapacityBytes == 0 || u.AvailableBytes > u.CapacityBytes || u.Path != fs.Path || u.Problem() != "" {
		t.Errorf("Usage() = %+v, %v, want figures that make sense", u, err)
	}
	if err := s.Sync(t.Context(), fs); err != nil {
		t.Errorf("Sync() = %v, want no error", err)
	}
	if u, err := s.Usage(t.Context(), runtime.Filesystem{Mountpoint: "/"}); err != nil || u.CapacityBytes == 0 {
		t.Errorf("Usage(mount point only) = %+v, %v, want figures", u, err)
	}
	gone := runtime.Filesystem{Path: filepath.Join(t.TempDir(), "gone")}
	if _, err := s.Usage(t.Context(), gone); err == nil {
		t.Error("Usage(missing folder) = nil, want an error")
	}
	if err := s.Sync(t.Context(), gone); err == nil {
		t.Error("Sync(missing folder) = nil, want an error")
	}
}
