// Package config reads hostler's configuration: one file and a folder of drop-ins. It is strict. It
// owns the keys, their defaults, their documentation, and the faults that it finds, each with file,
// line and field. It does not clamp or guess values, and it does not apply them: the packages that
// use the values do.
package config

import "hostler.io/hostler/controlplane/etcd/endpoint"

// Config is the whole configuration, with defaults. configfile.Spec documents the tags.
type Config struct {
	Node         Node         `yaml:"node" doc:"The Node: its name and resources."`
	ControlPlane ControlPlane `yaml:"controlPlane" doc:"Where Node, Lease and Events are kept."`
	Runtimes     Runtimes     `yaml:"runtimes" doc:"auto finds every container runtime that answers through CRI, Docker, Podman, and containers of runc and crun alone; or a list of {type: cri, docker or podman, endpoint: /path/to.sock}, or {type: runc, endpoint: /run/runc}."`
	Lease        Lease        `yaml:"lease" doc:"The Lease, which is the heartbeat of the host."`
	Status       Status       `yaml:"status" doc:"How the Node status is updated."`
	Pressure     Pressure     `yaml:"pressure" doc:"Thresholds of the pressure conditions: a quantity (100Mi) or a percentage (10%) of the capacity." reload:"live"`
	Conditions   Conditions   `yaml:"conditions" doc:"Custom conditions, from executables that report problems (/usr/share/doc/hostler/docs/howto/custom-condition.md)." reload:"live"`
	Shutdown     Shutdown     `yaml:"shutdown" doc:"How pods are stopped before the host goes down."`
	Reboot       Reboot       `yaml:"reboot" doc:"When hostler reboots this host (/usr/share/doc/hostler/docs/howto/reboots.md)."`
	ImageGC      ImageGC      `yaml:"imageGC" doc:"When images are removed."`
	ContainerGC  ContainerGC  `yaml:"containerGC" doc:"When dead containers, dead pods and their logs are removed."`
	State        State        `yaml:"state" doc:"Where the agent stores its state."`
	API          API          `yaml:"api" doc:"The API for the hostler commands, and optionally for network clients (/usr/share/doc/hostler/docs/howto/network-api.md)."`
	Metrics      Metrics      `yaml:"metrics" doc:"Prometheus metrics. The API socket serves them, too."`
	Log          Log          `yaml:"log" doc:"The agent's log."`
}

// Node configures the Node object.
type Node struct {
	Enabled       Switch            `yaml:"enabled" doc:"auto yields to a kubelet that registers this host, or has registered it in a cluster."`
	Name          string            `yaml:"name" doc:"A DNS subdomain; empty uses the host name, trimmed and lower-cased."`
	Labels        map[string]string `yaml:"labels" doc:"Labels to keep on the Node. Everyone who may read the Node can read them."`
	Annotations   map[string]string `yaml:"annotations" doc:"Annotations to keep on the Node. Everyone who may read the Node can read them."`
	Taints        []Taint           `yaml:"taints" doc:"Taints to give the Node: a list of {key, value, effect}. On Kubernetes they are set only when the Node is created: a node may not change its own taints."`
	Register      bool              `yaml:"register" doc:"false waits until another client has created the Node, and then writes its status."`
	Unschedulable bool              `yaml:"unschedulable" doc:"Create the Node cordoned. Later, use hostler cordon and uncordon; their state also applies to a recreated Node."`
	Address       Address           `yaml:"address" doc:"The addresses to publish." reload:"live"`
	MaxPods       int               `yaml:"maxPods" doc:"The maximum number of pods on this host." reload:"live" least:"1"`
	Reserved      Reserved          `yaml:"reserved" doc:"Resources reserved for the system, as quantities. Allocatable is capacity minus this." reload:"live"`
	OnTaint       string            `yaml:"onTaint" doc:"drain: if the Node has a NoExecute taint that is not in node.taints, stop all pods but critical ones when node.toleration is over; or none." words:"none|drain" reload:"live"`
	Toleration    Duration          `yaml:"toleration" doc:"The time to that drain: from when the agent first saw the taint in this boot, or from the end of the Lease." reload:"live"`
	Takeover      bool              `yaml:"takeover" doc:"Take over the Node if another machine has its name, even a running one."`
	CloudProvider string            `yaml:"cloudProvider" doc:"external: a cloud controller manager sets the addresses, and a new Node has its taint until then; or none." words:"none|external"`
	ProviderID    string            `yaml:"providerID" doc:"The ID of this host in the cloud; set if the Node has none."`
}

// Values of node.onTaint and lease.onLost.
const (
	ReactNone  = "none"
	ReactDrain = "drain"
)

// Address selects the addresses to publish.
type Address struct {
	Internal []string `yaml:"internal" doc:"An IP, a CIDR or an interface for each family; empty uses the source address of the route to the control plane, else of the default route."`
	External []string `yaml:"external" doc:"An ExternalIP for each family, as given."`
}

// Taint is a taint, with the fields of Kubernetes.
type Taint struct {
	Key    string `yaml:"key" needed:"true" secret:"no" doc:"The key, such as example.com/gpu."`
	Value  string `yaml:"value,omitempty" doc:"The value; optional."`
	Effect string `yaml:"effect" needed:"true" words:"NoSchedule|PreferNoSchedule|NoExecute" doc:"The effect on pods that do not tolerate it."`
}

// Reserved is the part of the capacity that is reserved for the system.
type Reserved struct {
	CPU              Quantity `yaml:"cpu" doc:"CPUs, such as 500m."`
	Memory           Quantity `yaml:"memory" doc:"Memory, such as 1Gi." shape:"wholeQuantity"`
	EphemeralStorage Quantity `yaml:"ephemeral-storage" doc:"Disk of the node filesystem, such as 10Gi." shape:"wholeQuantity"`
	PID              Quantity `yaml:"pid" doc:"Process IDs, such as 1000." shape:"wholeQuantity"`
}

// ControlPlane selects and configures the control-plane client.
type ControlPlane struct {
	Type       string     `yaml:"type" doc:"embedded stores everything on this host, kubernetes in a cluster, etcd in etcd, plugin in a program of yours (/usr/share/doc/hostler/docs/howto/control-plane-plugin.md)." words:"embedded|kubernetes|etcd|plugin"`
	Kubernetes Kubernetes `yaml:"kubernetes" doc:"Connection to the cluster; for type kubernetes."`
	Etcd       Etcd       `yaml:"etcd" doc:"Connection to etcd; for type etcd."`
	Plugin     Plugin     `yaml:"plugin" doc:"Connection to the plugin; for type plugin."`
}

// Plugin configures the control-plane plug-in.
type Plugin struct {
	Socket string `yaml:"socket" doc:"Absolute path of the unix socket that the plugin serves." shape:"optionalPath"`
}

// Etcd configures the etcd cluster and its credentials.
type Etcd = endpoint.Config

// Users that an exec plugin runs as.
const (
	UserExec = "hostler-exec"
	UserRoot = "root"
)

// Kubernetes configures the cluster and its credentials.
type Kubernetes struct {
	Kubeconfig           string `yaml:"kubeconfig" doc:"A kubeconfig with the credentials of system:node:NAME: a client certificate, a token or an exec plugin." shape:"optionalPath" secret:"file"`
	ExecPluginUser       string `yaml:"execPluginUser" words:"hostler-exec|root" doc:"The user that runs an exec plugin of the kubeconfig: hostler-exec, or root if the plugin needs files that only root can read."`
	BootstrapKubeconfig  string `yaml:"bootstrapKubeconfig" doc:"A kubeconfig with which this host requests its own certificate (TLS bootstrap). The certificate replaces the credentials in kubeconfig." shape:"optionalPath" secret:"file"`
	CertificateDirectory string `yaml:"certificateDirectory" doc:"Directory of that certificate and its key. The certificate is renewed in time." shape:"path"`
}

// Runtime is one configured runtime.
type Runtime struct {
	Type     string `yaml:"type" needed:"true" words:"cri|docker|podman|runc" doc:"The API of the runtime."`
	Endpoint string `yaml:"endpoint" needed:"true" doc:"Absolute path of its unix socket; for type runc, of its state root."`
}

// Lease configures the Lease.
type Lease struct {
	Enabled       Switch   `yaml:"enabled" doc:"auto yields to a kubelet that renews the Lease of this host, and is off if node.enabled is false."`
	Duration      Duration `yaml:"duration" doc:"How long a renewal is valid; whole seconds."`
	RenewInterval Duration `yaml:"renewInterval" doc:"How often the Lease is renewed; at least 100ms, and less than half the duration."`
	OnLost        string   `yaml:"onLost" doc:"drain: if the Lease was not renewed for its duration and node.toleration, stop all pods but critical ones; or none. If the control plane is down for that long, all hosts stop their pods." words:"none|drain" reload:"live"`
}

// Status configures the status loop.
type Status struct {
	UpdateInterval Duration `yaml:"updateInterval" doc:"How often the host is checked; changes are written at once."`
	ReportInterval Duration `yaml:"reportInterval" doc:"How often the status is written even if nothing changed."`
	Pods           bool     `yaml:"pods" doc:"Keep a v1 Pod object in etcd for each pod that runs on this host; for type etcd (/usr/share/doc/hostler/docs/reference/etcd.md)."`
	MaxImages      int      `yaml:"maxImages" doc:"The most images listed in the Node's status; -1 lists all." reload:"live" least:"-1"`
}

// Pressure configures the pressure conditions.
type Pressure struct {
	MemoryAvailable   Threshold `yaml:"memoryAvailable" doc:"MemoryPressure below this much MemAvailable."`
	NodefsAvailable   Threshold `yaml:"nodefsAvailable" doc:"DiskPressure below this much space on the node filesystem."`
	NodefsInodesFree  Threshold `yaml:"nodefsInodesFree" doc:"DiskPressure below this many free inodes there."`
	ImagefsAvailable  Threshold `yaml:"imagefsAvailable" doc:"DiskPressure below this much space on an image filesystem."`
	ImagefsInodesFree Threshold `yaml:"imagefsInodesFree" doc:"DiskPressure below this many free inodes there."`
	PIDAvailable      Threshold `yaml:"pidAvailable" doc:"PIDPressure below this many free process IDs."`
	TransitionPeriod  Duration  `yaml:"transitionPeriod" doc:"How long pressure must be over before its condition becomes False."`
	PSI               PSI       `yaml:"psi" doc:"Thresholds of the contention conditions, by pressure stall information (PSI) of the kernel. A condition exists only if kind, window and threshold are set."`
}

// PSI configures the conditions that report pressure stall information.
type PSI struct {
	CPU    Stall `yaml:"cpu" doc:"Condition hostler.io/CPUContention."`
	Memory Stall `yaml:"memory" doc:"Condition hostler.io/MemoryContention."`
	IO     Stall `yaml:"io" doc:"Condition hostler.io/IOContention."`
}

// Stall configures one PSI condition.
type Stall struct {
	Kind      string   `yaml:"kind" doc:"some counts the time in which at least one task waited, full the time in which all waited. CPUs have only some." words:"|some|full"`
	Window    Duration `yaml:"window" doc:"The time that is averaged: 10s, 60s or 5m."`
	Threshold string   `yaml:"threshold" doc:"The share of that time, such as 20%, above which the condition is True." shape:"percentage"`
}

// Conditions configures the custom checks of the administrator.
type Conditions struct {
	Directory string   `yaml:"directory" doc:"Absolute path of their directory; only root may have write access." shape:"path"`
	Interval  Duration `yaml:"interval" doc:"How often each executable runs, unless its file sets that."`
	Timeout   Duration `yaml:"timeout" doc:"How long a run may take, unless its file sets that. Then it is killed with its child processes."`
}

// Shutdown configures the guard.
type Shutdown struct {
	Enabled                 Switch          `yaml:"enabled" doc:"auto yields to a kubelet that guards the shutdown."`
	GracePeriod             Duration        `yaml:"gracePeriod" doc:"Time for all pods together; 0s switches the guard off."`
	GracePeriodCriticalPods Duration        `yaml:"gracePeriodCriticalPods" doc:"The last part of it, kept for critical pods."`
	ByPriority              []PriorityGrace `yaml:"byPriority" doc:"Instead of the two periods: a list of {priority, gracePeriod}; the lowest priority stops first."`
	StopFirst               []string        `yaml:"stopFirst" doc:"Services to stop before any pod because they would restart pods, such as k3s.service; needs enabled: true." shape:"service"`
	RestartAfterBoot        string          `yaml:"restartAfterBoot" doc:"auto: after boot, start the containers that hostler stopped and that nothing else starts, such as Docker and Podman containers with unless-stopped. never: start none." words:"auto|never"`
	Critical                []CriticalRule  `yaml:"critical" doc:"Pods to treat as critical: a list of {namespace, name, labels, annotations}, with * and ?."`
}

// RestartNever is the value of RestartAfterBoot beside auto.
const RestartNever = "never"

// PriorityGrace is the grace period of one phase.
type PriorityGrace struct {
	Priority    int32    `yaml:"priority" doc:"Pods of this priority, and above up to that of the next group."`
	GracePeriod Duration `yaml:"gracePeriod" needed:"true" doc:"Time for all of them together."`
}

// CriticalRule matches pods. Every field that is set must match.
type CriticalRule struct {
	Namespace   string            `yaml:"namespace,omitempty" doc:"A pattern of the pod's namespace."`
	Name        string            `yaml:"name,omitempty" doc:"A pattern of the pod's name."`
	Labels      map[string]string `yaml:"labels,omitempty" doc:"Labels that the pod has, with patterns of their values."`
	Annotations map[string]string `yaml:"annotations,omitempty" doc:"Annotations that the pod has, with patterns of their values."`
}

// Reboot configures reboots by hostler.
type Reboot struct {
	Enabled   bool       `yaml:"enabled" doc:"true: reboot this host when a file, a check or hostler reboot requests it, and it is this host's turn."`
	Sentinels []string   `yaml:"sentinels" doc:"Files that request a reboot while they exist." reload:"live" shape:"path"`
	Checks    string     `yaml:"checks" doc:"Directory of executables that request a reboot with exit code 1 and need none with 0; with any other, the host does not reboot. Only root may have write access." reload:"live" shape:"path"`
	Window    []string   `yaml:"window" doc:"When reboots may begin and end, as in systemd.time(7), such as Mon..Fri 02:00-05:00 or Sat 22:00-04:00 Europe/Berlin; empty for always." reload:"live"`
	Group     string     `yaml:"group" doc:"The group of hosts that share reboot slots: the value of label hostler.io/reboot-group, which hostler sets on its Node."`
	ReadyFor  Duration   `yaml:"readyFor" doc:"How long the Node must be Ready after the reboot before the next host may reboot." reload:"live"`
	Command   string     `yaml:"command" doc:"The command that reboots the host, without a shell." reload:"live"`
	Lock      RebootLock `yaml:"lock" doc:"Who gives the slots; hostler server if empty."`
}

// RebootLock configures who grants reboot slots.
type RebootLock struct {
	FleetLock string `yaml:"fleetLock" doc:"URL of a server that speaks the FleetLock protocol."`
	// PasswordFile is not in the URL, because the configuration contains no secrets.
	PasswordFile string `yaml:"passwordFile" doc:"A file with the password that this server requires by HTTP basic authentication, such as reboots.passwordFile of hostler server." shape:"optionalPath" secret:"file"`
	Insecure     bool   `yaml:"insecure" doc:"true allows plain http to another host, or with a password: who is on the network path, or listens on the port of this host while no server runs, gets the password and can grant the lock to several hosts."`
}

// ImageGC configures the collection of images.
type ImageGC struct {
	Enabled                    Switch   `yaml:"enabled" doc:"auto yields to a kubelet that collects images."`
	Interval                   Duration `yaml:"interval" doc:"How often the image filesystems are checked." reload:"live"`
	HighThresholdPercent       int      `yaml:"highThresholdPercent" doc:"Collection starts when this percentage of a filesystem is used; 100 never starts." reload:"live" least:"1" most:"100"`
	LowThresholdPercent        int      `yaml:"lowThresholdPercent" doc:"Collection stops when no more than this is used." reload:"live" least:"0" most:"99"`
	InodesHighThresholdPercent int      `yaml:"inodesHighThresholdPercent" doc:"The same for inodes." reload:"live" least:"1" most:"100"`
	InodesLowThresholdPercent  int      `yaml:"inodesLowThresholdPercent" doc:"The same for inodes." reload:"live" least:"0" most:"99"`
	MinimumAge                 Duration `yaml:"minimumAge" doc:"An image that was pulled, tagged or used more recently than this is kept." reload:"live"`
	MaximumAge                 Duration `yaml:"maximumAge" doc:"An image unused for longer than this is removed, even with enough free space; 0s is no limit." reload:"live"`
	Keep                       []string `yaml:"keep" doc:"Patterns of references to keep, such as registry.example/base/*." reload:"live"`
	IncludeLocal               bool     `yaml:"includeLocal" doc:"Collect images built on this host too." reload:"live"`
}

// ContainerGC configures the collection of dead containers.
type ContainerGC struct {
	Enabled            Switch   `yaml:"enabled" doc:"auto yields to a kubelet that collects containers."`
	Interval           Duration `yaml:"interval" doc:"How often dead containers, dead pods and logs are checked." reload:"live"`
	MinimumAge         Duration `yaml:"minimumAge" doc:"Containers that ended more recently than this are kept. Always kept: containers that never started and orphaned logs for an hour, dead pods without containers for a minute." reload:"live"`
	MaximumAge         Duration `yaml:"maximumAge" doc:"A container that ended longer ago than this is removed; 0s is no limit." reload:"live"`
	MaxPerPodContainer int      `yaml:"maxPerPodContainer" doc:"Dead instances to keep for each container of a pod; -1 is no limit." reload:"live" least:"-1"`
	MaxContainers      int      `yaml:"maxContainers" doc:"Dead containers to keep in total; -1 is no limit." reload:"live" least:"-1"`
}

// State configures where state is stored.
type State struct {
	Directory string `yaml:"directory" doc:"Absolute path of the directory; created with mode 0700 if missing." shape:"path"`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" doc:"debug, info, warn or error." reload:"live" words:"debug|info|warn|error"`
	Format string `yaml:"format" doc:"text or json." words:"text|json"`
}

// DefaultFile and DefaultDropIns are the paths of the configuration.
const (
	DefaultFile    = "/etc/hostler/hostler.yaml"
	DefaultDropIns = "/etc/hostler/conf.d"
	DefaultSocket  = "/run/hostler/hostler.sock"
)
