package status_test

import (
	"reflect"
	"testing"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

func TestHeadroomsTellFiguresBesideTheirThresholds(t *testing.T) {
	root := probe.Filesystem{Path: "/", Mountpoint: "/", Type: "ext4", Device: "/dev/sda1", CapacityBytes: 100 << 30, AvailableBytes: 12 << 30}
	got := status.Headrooms(status.Facts{
		Memory: probe.Memory{TotalBytes: 8 << 30, AvailableBytes: 50 << 20},
		PIDs:   probe.PIDs{Problem: "no loadavg"},
		Filesystems: []status.Filesystem{
			{Role: status.RoleNode, Filesystem: root}, {Role: status.RoleImage, Filesystem: root}, {Role: status.RoleImage, Filesystem: root},
		},
	}, status.Options{Pressure: status.DefaultPolicy()})
	want := []status.Headroom{
		{Now: "50Mi of 8Gi memory available", Threshold: "100Mi", Below: true},
		{Now: "/ (ext4 on /dev/sda1) has 12% free", Threshold: "10%"},
		{Now: "/ (ext4 on /dev/sda1) has 12% free", Threshold: "15%", Below: true},
		{Problem: "no loadavg"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Headrooms() = %+v, want %+v", got, want)
	}
}
