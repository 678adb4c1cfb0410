package config

import (
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd/endpoint"
	"hostler.io/hostler/status/conditions"
)

// Default returns the configuration of a host without configuration files.
func Default() Config {
	return Config{
		Node: Node{Enabled: Auto, Register: true, MaxPods: 110, OnTaint: ReactNone, Toleration: Duration(5 * time.Minute), CloudProvider: "none"},
		ControlPlane: ControlPlane{
			Type:       "embedded",
			Kubernetes: Kubernetes{ExecPluginUser: UserExec, CertificateDirectory: "/var/lib/hostler/pki"},
			Etcd:       endpoint.Default(),
		},
		Runtimes: Runtimes{Auto: true},
		Lease:    Lease{Enabled: Auto, Duration: Duration(40 * time.Second), RenewInterval: Duration(10 * time.Second), OnLost: ReactNone},
		Status:   Status{UpdateInterval: Duration(10 * time.Second), ReportInterval: Duration(5 * time.Minute), MaxImages: 50},
		Pressure: Pressure{
			MemoryAvailable:   "100Mi",
			NodefsAvailable:   "10%",
			NodefsInodesFree:  "5%",
			ImagefsAvailable:  "15%",
			ImagefsInodesFree: "5%",
			PIDAvailable:      "5%",
			TransitionPeriod:  Duration(5 * time.Minute),
		},
		Conditions: Conditions{Directory: conditions.DefaultFolder, Interval: Duration(30 * time.Second), Timeout: Duration(10 * time.Second)},
		Shutdown:   Shutdown{Enabled: Auto, GracePeriod: Duration(30 * time.Second), GracePeriodCriticalPods: Duration(10 * time.Second), RestartAfterBoot: string(Auto)},
		Reboot: Reboot{
			Sentinels: []string{"/run/reboot-required"}, Checks: defaultRebootChecks,
			Group: controlplane.DefaultRebootGroup, ReadyFor: Duration(time.Minute), Command: "systemctl reboot",
		},
		ImageGC: ImageGC{
			Enabled:                    Auto,
			Interval:                   Duration(5 * time.Minute),
			HighThresholdPercent:       85,
			LowThresholdPercent:        80,
			InodesHighThresholdPercent: 90,
			InodesLowThresholdPercent:  85,
			MinimumAge:                 Duration(2 * time.Minute),
		},
		ContainerGC: ContainerGC{
			Enabled:            Auto,
			Interval:           Duration(time.Minute),
			MaxPerPodContainer: 1,
			MaxContainers:      -1,
		},
		State:   State{Directory: "/var/lib/hostler"},
		API:     API{Socket: DefaultSocket},
		Metrics: Metrics{Listen: "127.0.0.1:9754"},
		Log:     Log{Level: "info", Format: "text"},
	}
}
