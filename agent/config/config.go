// Package config reads hostler's configuration: one file and a folder of
// drop-ins, strictly. It owns the keys, their defaults, their documentation and
// the faults it finds in them, each with file, line and field. It refuses to
// clamp, to guess and to act: the packages that use the values decide what they mean.
package config

// Config is the whole configuration, defaults filled in. The tags of its fields are the
// one source for what `hostler config default`, hostler.yaml(5) and the schema say of
// each key:
//
//	doc     what it means
//	reload  "live" where a reload takes it up, with all that it holds
//	words   the values that it may have, with nothing before the first | where it may be empty
//	least   the smallest number that it may be, and most the largest
//	shape   how its text is written, where its type does not say it; see shapes
//	needed  "true" where an entry of a list is nothing without it
//	secret  "file" if it names a file that holds a secret, or "no" if it only sounds like one: the
//	        configuration itself holds none, for group hostler and the network may read it
type Config struct {
	Node         Node         `yaml:"node" doc:"The Node: what this host is called and what it offers."`
	ControlPlane ControlPlane `yaml:"controlPlane" doc:"Where Node, Lease and Events are kept."`
	Runtimes     Runtimes     `yaml:"runtimes" doc:"auto finds every container runtime that answers through CRI, Docker, Podman, and containers of runc and crun alone; or a list of {type: cri, docker or podman, endpoint: /path/to.sock}, or {type: runc, endpoint: /run/runc}."`
	Lease        Lease        `yaml:"lease" doc:"The heartbeat."`
	Status       Status       `yaml:"status" doc:"How the Node's status is kept up to date."`
	Pressure     Pressure     `yaml:"pressure" doc:"When the host counts as short of something: a quantity (100Mi) or a percentage (10%) of what there is." reload:"live"`
	Conditions   Conditions   `yaml:"conditions" doc:"Conditions of your own, from executables that say whether there is a problem (docs/howto/custom-condition.md)." reload:"live"`
	Shutdown     Shutdown     `yaml:"shutdown" doc:"How pods are stopped before the host goes down."`
	ImageGC      ImageGC      `yaml:"imageGC" doc:"When images are removed."`
	ContainerGC  ContainerGC  `yaml:"containerGC" doc:"When dead containers, dead pods and their logs are removed."`
	State        State        `yaml:"state" doc:"What must survive a restart."`
	API          API          `yaml:"api" doc:"The API that the hostler commands ask, and that others may over the network (docs/howto/network-api.md)."`
	Metrics      Metrics      `yaml:"metrics" doc:"Prometheus metrics; they are on the API socket as well."`
	Log          Log          `yaml:"log" doc:"The agent's log."`
}

// Node configures what the Node says.
type Node struct {
	Enabled       Switch            `yaml:"enabled" doc:"auto stands back where a kubelet registers this host, or did in a cluster."`
	Name          string            `yaml:"name" doc:"A DNS subdomain; empty takes the host name, trimmed and lower-cased."`
	Labels        map[string]string `yaml:"labels" doc:"Labels to keep on the Node. Whoever can read the Node reads them."`
	Annotations   map[string]string `yaml:"annotations" doc:"Annotations to keep on the Node. Whoever can read the Node reads them."`
	Taints        []Taint           `yaml:"taints" doc:"Taints to give the Node: a list of {key, value, effect}. On Kubernetes only when it is created, for a node may not change its own later."`
	Register      bool              `yaml:"register" doc:"false waits until someone else has created the Node, and then fills in its status."`
	Unschedulable bool              `yaml:"unschedulable" doc:"Create the Node cordoned. From then on hostler cordon and uncordon decide, also for a Node that is created again."`
	Address       Address           `yaml:"address" doc:"The addresses to publish." reload:"live"`
	MaxPods       int               `yaml:"maxPods" doc:"The most pods this host is meant to run." reload:"live" least:"1"`
	Reserved      Reserved          `yaml:"reserved" doc:"What the system keeps for itself, as quantities: allocatable is capacity less this." reload:"live"`
	Takeover      bool              `yaml:"takeover" doc:"Take the place of another machine that has the name, be it alive or not."`
	CloudProvider string            `yaml:"cloudProvider" doc:"external leaves addresses to a cloud controller manager, for which a new Node waits with a taint; or none." words:"none|external"`
	ProviderID    string            `yaml:"providerID" doc:"What the cloud calls this host; filled in where the Node has none."`
}

// Address picks the addresses to publish.
type Address struct {
	Internal []string `yaml:"internal" doc:"An IP, a CIDR or an interface for each family; empty takes the source of the route to the control plane, else of the default route."`
	External []string `yaml:"external" doc:"An ExternalIP for each family, as given."`
}

// Taint is one taint, as Kubernetes has it.
type Taint struct {
	Key    string `yaml:"key" needed:"true" secret:"no" doc:"The key, such as example.com/gpu."`
	Value  string `yaml:"value,omitempty" doc:"The value; it may be left out."`
	Effect string `yaml:"effect" needed:"true" words:"NoSchedule|PreferNoSchedule|NoExecute" doc:"What it does to pods that do not tolerate it."`
}

// Reserved holds back part of the capacity.
type Reserved struct {
	CPU              Quantity `yaml:"cpu" doc:"CPUs, such as 500m."`
	Memory           Quantity `yaml:"memory" doc:"Memory, such as 1Gi." shape:"wholeQuantity"`
	EphemeralStorage Quantity `yaml:"ephemeral-storage" doc:"Disk of the node filesystem, such as 10Gi." shape:"wholeQuantity"`
	PID              Quantity `yaml:"pid" doc:"Process IDs, such as 1000." shape:"wholeQuantity"`
}

// ControlPlane picks the client.
type ControlPlane struct {
	Type       string     `yaml:"type" doc:"embedded keeps everything on this host; kubernetes tells a cluster; etcd keeps it in etcd, for others to read; plugin tells a program of yours (docs/howto/control-plane-plugin.md)." words:"embedded|kubernetes|etcd|plugin"`
	Kubernetes Kubernetes `yaml:"kubernetes" doc:"How the cluster is reached; with type kubernetes."`
	Etcd       Etcd       `yaml:"etcd" doc:"How etcd is reached; with type etcd."`
	Plugin     Plugin     `yaml:"plugin" doc:"How the plugin is reached; with type plugin."`
}

// Plugin says which program keeps what hostler tells.
type Plugin struct {
	Socket string `yaml:"socket" doc:"Absolute path of the unix socket that the plugin serves." shape:"optionalPath"`
}

// Etcd says which etcd cluster, and as whom.
type Etcd struct {
	Endpoints    []string `yaml:"endpoints" doc:"The members' URLs, such as https://etcd-1.example:2379; one is used at a time, and another one where it does not answer." shape:"member"`
	Prefix       string   `yaml:"prefix" doc:"What all keys begin with: PREFIX/nodes/NAME, PREFIX/leases/NAME, PREFIX/events/NODE/NAME." shape:"path"`
	TLS          EtcdTLS  `yaml:"tls" doc:"Files for https. They are read anew for each connection."`
	Username     string   `yaml:"username" doc:"A user of etcd's own, where its auth is on and the client certificate does not name one."`
	PasswordFile string   `yaml:"passwordFile" doc:"A file that holds the user's password." shape:"optionalPath" secret:"file"`
	Insecure     bool     `yaml:"insecure" doc:"true allows plain http to other hosts: everyone on the way can read and change what is told."`
}

// EtcdTLS are the files of connections to etcd.
type EtcdTLS struct {
	CA          string `yaml:"ca" doc:"The authorities of the members' certificates; empty for those that this host trusts anyway." shape:"optionalPath"`
	Certificate string `yaml:"certificate" doc:"This host's client certificate." shape:"optionalPath"`
	Key         string `yaml:"key" doc:"Its key." shape:"optionalPath" secret:"file"`
}

// Users that an exec plugin runs as.
const (
	UserNobody = "nobody"
	UserRoot   = "root"
)

// Kubernetes says which cluster, and as whom.
type Kubernetes struct {
	Kubeconfig           string `yaml:"kubeconfig" doc:"A kubeconfig with the credentials of system:node:NAME: a client certificate, a token or an exec plugin." shape:"optionalPath" secret:"file"`
	ExecPluginUser       string `yaml:"execPluginUser" words:"nobody|root" doc:"Who runs an exec plugin of the kubeconfig: nobody, or root if the plugin needs files that only root can read."`
	BootstrapKubeconfig  string `yaml:"bootstrapKubeconfig" doc:"A kubeconfig by which this host asks the cluster for a certificate of its own (TLS bootstrap), which then stands in for the credentials in kubeconfig." shape:"optionalPath" secret:"file"`
	CertificateDirectory string `yaml:"certificateDirectory" doc:"Where that certificate is kept with its key, and renewed in time." shape:"path"`
}

// Runtime is one configured runtime.
type Runtime struct {
	Type     string `yaml:"type" needed:"true" words:"cri|docker|podman|runc" doc:"How it is spoken to."`
	Endpoint string `yaml:"endpoint" needed:"true" doc:"Absolute path of its unix socket; with type runc of its state root."`
}

// Lease configures the heartbeat.
type Lease struct {
	Enabled       Switch   `yaml:"enabled" doc:"auto stands back where a kubelet renews this host's Lease, and where node.enabled is false."`
	Duration      Duration `yaml:"duration" doc:"How long a renewal counts; whole seconds."`
	RenewInterval Duration `yaml:"renewInterval" doc:"How often it is renewed; shorter than half the duration."`
}

// Status configures the status loop.
type Status struct {
	UpdateInterval Duration `yaml:"updateInterval" doc:"How often the host is looked at; changes are written at once."`
	ReportInterval Duration `yaml:"reportInterval" doc:"How often the status is written although nothing changed."`
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
	TransitionPeriod  Duration  `yaml:"transitionPeriod" doc:"How long pressure must be gone before its condition is lowered."`
	PSI               PSI       `yaml:"psi" doc:"When stalls for want of something count as contention, as the kernel's pressure stall information has them. Each condition is there only where kind, window and threshold are set."`
}

// PSI configures the conditions of contention.
type PSI struct {
	CPU    Stall `yaml:"cpu" doc:"Condition hostler.io/CPUContention."`
	Memory Stall `yaml:"memory" doc:"Condition hostler.io/MemoryContention."`
	IO     Stall `yaml:"io" doc:"Condition hostler.io/IOContention."`
}

// Stall configures one of them.
type Stall struct {
	Kind      string   `yaml:"kind" doc:"some counts the time in which a task or more waited, full that in which all waited at once; of the CPUs there is only some." words:"|some|full"`
	Window    Duration `yaml:"window" doc:"The time that is looked back over: 10s, 60s or 5m."`
	Threshold string   `yaml:"threshold" doc:"The part of that time, such as 20%, above which the condition is raised." shape:"percentage"`
}

// Conditions configures the checks of an administrator's own.
type Conditions struct {
	Directory string   `yaml:"directory" doc:"Absolute path of the folder that holds them; nobody but root may write it." shape:"path"`
	Interval  Duration `yaml:"interval" doc:"How often each is run that does not say it itself."`
	Timeout   Duration `yaml:"timeout" doc:"How long a run may take where the file does not say it; then it is killed with all that it started."`
}

// Shutdown configures the guard.
type Shutdown struct {
	Enabled                 Switch          `yaml:"enabled" doc:"auto stands back where a kubelet guards the shutdown."`
	GracePeriod             Duration        `yaml:"gracePeriod" doc:"Time for all pods together; 0s switches the guard off."`
	GracePeriodCriticalPods Duration        `yaml:"gracePeriodCriticalPods" doc:"The last part of it, kept for critical pods."`
	ByPriority              []PriorityGrace `yaml:"byPriority" doc:"Instead of the two periods: a list of {priority, gracePeriod}, lowest first to stop."`
	StopFirst               []string        `yaml:"stopFirst" doc:"Services to stop before any pod, for they run a kubelet that would start pods again, such as k3s.service; needs enabled: true." shape:"service"`
	RestartAfterBoot        string          `yaml:"restartAfterBoot" doc:"auto starts again after the boot what hostler has stopped, is to run until somebody stops it, and its runtime does not start then, such as Docker's and Podman's containers with unless-stopped; never leaves that to you." words:"auto|never"`
	Critical                []CriticalRule  `yaml:"critical" doc:"Pods to treat as critical: a list of {namespace, name, labels, annotations}, with * and ?."`
}

// RestartNever is the value of RestartAfterBoot beside auto.
const RestartNever = "never"

// PriorityGrace is one phase.
type PriorityGrace struct {
	Priority    int32    `yaml:"priority" doc:"Pods of this priority, and above up to that of the next group."`
	GracePeriod Duration `yaml:"gracePeriod" needed:"true" doc:"Time for all of them together."`
}

// CriticalRule matches pods; every field that is set must match.
type CriticalRule struct {
	Namespace   string            `yaml:"namespace,omitempty" doc:"A pattern of the pod's namespace."`
	Name        string            `yaml:"name,omitempty" doc:"A pattern of the pod's name."`
	Labels      map[string]string `yaml:"labels,omitempty" doc:"Labels that the pod has, with patterns of their values."`
	Annotations map[string]string `yaml:"annotations,omitempty" doc:"Annotations that the pod has, with patterns of their values."`
}

// ImageGC configures the collection of images.
type ImageGC struct {
	Enabled                    Switch   `yaml:"enabled" doc:"auto stands back where a kubelet collects images."`
	Interval                   Duration `yaml:"interval" doc:"How often the image filesystems are looked at." reload:"live"`
	HighThresholdPercent       int      `yaml:"highThresholdPercent" doc:"Collection starts when this much of a filesystem is used; 100 never starts." reload:"live" least:"1" most:"100"`
	LowThresholdPercent        int      `yaml:"lowThresholdPercent" doc:"Collection stops when no more than this is used." reload:"live" least:"0" most:"99"`
	InodesHighThresholdPercent int      `yaml:"inodesHighThresholdPercent" doc:"The same for inodes." reload:"live" least:"1" most:"100"`
	InodesLowThresholdPercent  int      `yaml:"inodesLowThresholdPercent" doc:"The same for inodes." reload:"live" least:"0" most:"99"`
	MinimumAge                 Duration `yaml:"minimumAge" doc:"An image that came, got a name or was used less than this ago is kept." reload:"live"`
	MaximumAge                 Duration `yaml:"maximumAge" doc:"An image unused for longer than this goes, space or not; 0s is no limit." reload:"live"`
	Keep                       []string `yaml:"keep" doc:"Patterns of references to keep, such as registry.example/base/*." reload:"live"`
	IncludeLocal               bool     `yaml:"includeLocal" doc:"Collect images built on this host too." reload:"live"`
}

// ContainerGC configures the collection of dead containers.
type ContainerGC struct {
	Enabled            Switch   `yaml:"enabled" doc:"auto stands back where a kubelet collects containers."`
	Interval           Duration `yaml:"interval" doc:"How often dead containers, dead pods and logs are looked at." reload:"live"`
	MinimumAge         Duration `yaml:"minimumAge" doc:"What ended less than this ago is kept. Whatever it is, what never started and the logs of no pod are kept for an hour, and a dead pod without containers for a minute." reload:"live"`
	MaximumAge         Duration `yaml:"maximumAge" doc:"A container that ended longer ago than this goes; 0s is no limit." reload:"live"`
	MaxPerPodContainer int      `yaml:"maxPerPodContainer" doc:"Dead ones to keep for each container of a pod; -1 is no limit." reload:"live" least:"-1"`
	MaxContainers      int      `yaml:"maxContainers" doc:"Dead ones to keep in all; -1 is no limit." reload:"live" least:"-1"`
}

// State says where state is kept.
type State struct {
	Directory string `yaml:"directory" doc:"Absolute path of the folder; made 0700 where it is missing." shape:"path"`
}

// Log configures the log.
type Log struct {
	Level  string `yaml:"level" doc:"debug, info, warn or error." reload:"live" words:"debug|info|warn|error"`
	Format string `yaml:"format" doc:"text or json." words:"text|json"`
}

// DefaultFile and DefaultDropIns are where the configuration lies on a host.
const (
	DefaultFile    = "/etc/hostler/hostler.yaml"
	DefaultDropIns = "/etc/hostler/conf.d"
	DefaultSocket  = "/run/hostler/hostler.sock"
)
