package doctor

import (
	"cmp"
	"strings"
	"time"

	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/logindconf"
)

// Service is the name of hostler's unit.
const Service = "hostler.service"

// Facts is the input of the checks, with a field for each subject. A part that could not be read says
// why.
type Facts struct {
	Agent         Agent
	Configuration Configuration
	Name          *Name // nil if the Node is switched off
	Protection    Protection
	Phases        []plan.PhaseSpec // none if shutdown protection is switched off
	StopFirst     []string         // services that are stopped before any pod
	Guard         *shutdown.Status // nil without an agent
	Logind        Logind
	Kubelet       Kubelet
	Systemd       Systemd
	Runtimes      Runtimes
	Collection    Collection
	Machine       Machine
	Cluster       *Cluster        // nil unless the control plane is Kubernetes
	Etcd          *Etcd           // nil unless the control plane is etcd
	Plugin        *Plugin         // nil unless the control plane is a plugin
	Network       *Network        // nil if hostler serves nothing over the network
	Server        *Server         // nil if Gather's caller did not look for one
	Last          *journal.Record // nil if no shutdown is recorded
	State         State
	Conditions    Conditions
	Reboots       Reboots
}

// Agent is the agent of this host.
type Agent struct {
	Answers bool
	Problem string // why it does not answer
	PID     int
	Version string
}

// Configuration says whether the agent runs with the configuration in its files.
type Configuration struct {
	// File is the configuration file of the agent; empty for the default one, which every command
	// finds itself.
	File string `json:"file,omitempty"`
	// Differs lists the keys whose values in the files are not effective.
	Differs []string `json:"differs,omitempty"`
	Restart bool     `json:"restart,omitempty"` // these keys need a restart, not a reload
	Refused string   `json:"refused,omitempty"` // why the last reload was rejected
	// Fault is the error in the files: an agent would not start with them.
	Fault string `json:"fault,omitempty"`
	// Origin returns the file and line that set a key; empty if no file does. It is nil if the files
	// were not read.
	Origin func(key string) string `json:"-"`
}

// path is the configuration file of the agent.
func (c Configuration) path() string { return cmp.Or(c.File, "/etc/hostler/hostler.yaml") }

// setBy returns the file and line that set a key; empty if no file does.
func (c Configuration) setBy(key string) string {
	if c.Origin == nil {
		return ""
	}
	return c.Origin(key)
}

// where is the place for a value of a key: the file and line that set it now. Another file may be
// overridden. If no file sets the key, it is the last section that has other keys beside it, or else
// the configuration file.
func (c Configuration) where(key string) string {
	section, _, _ := strings.Cut(key, ".")
	return cmp.Or(c.setBy(key), c.setBy(section), c.path())
}

// setting is a value for a key, as a hint names it.
type setting struct{ key, text string }

// places lists the settings, each with the place for it.
func (c Configuration) places(settings []setting) string {
	var places []string
	for i, s := range settings {
		if i+1 < len(settings) && c.where(settings[i+1].key) == c.where(s.key) { // the next one names the place
			places = append(places, s.text)
			continue
		}
		places = append(places, s.text+" in "+c.where(s.key))
	}
	return strings.Join(places, " and ")
}

// Trouble says why the files are not effective, with several reasons on a line each. It is empty if they
// are effective.
func (c Configuration) Trouble() string {
	switch {
	case c.Fault != "":
		return "the files are invalid, and an agent would not start with them: " + listed(c.Fault)
	case c.Refused != "":
		return "the last reload was rejected: " + listed(c.Refused)
	case len(c.Differs) > 0:
		return "the files differ from the effective configuration: " + strings.Join(c.Differs, ", ")
	}
	return ""
}

// listed puts several reasons on lines of their own.
func listed(reasons string) string {
	reasons = strings.TrimSpace(reasons)
	if strings.Contains(reasons, "\n") {
		return "\n" + reasons
	}
	return reasons
}

// Fix is the command that makes the files effective.
func (c Configuration) Fix() string { return c.fix(Facts{}.fixes()) }

func (c Configuration) fix(m fixes) string {
	switch {
	case c.Fault != "":
		return "correct the files until `hostler config check" + c.flag() + "` finds no error"
	case c.Refused != "":
		return "correct the files, then hostler reload"
	case c.Restart:
		return m.restartAgent()
	}
	return "hostler reload"
}

// flag is the flag with which a command reads the agent's files.
func (c Configuration) flag() string {
	switch {
	case c.File == "":
		return ""
	case strings.Contains(c.File, " "):
		return " --config '" + c.File + "'"
	}
	return " --config " + c.File
}

// Protection is the condition hostler.io/ShutdownProtected, or the closest that can be found without an
// agent.
type Protection struct {
	Protected bool
	Reason    string // of the condition
	Message   string
}

// Logind is the login manager as it answers now.
type Logind struct {
	Bus, Login error // why D-Bus, or logind on it, does not answer; nil if it does
	Granted    time.Duration
	Locks      []systemd.InhibitorLock // of all processes
	Own        []systemd.InhibitorLock // hostler's locks that delay a shutdown
	Held       bool                    // this process holds a lock for which logind waits
	Scheduled  string                  // kind of the scheduled shutdown, such as "reboot"; empty for none
	Begins     time.Time               // of the scheduled shutdown
	Files      logindconf.Delay
	WriteHint  string // the fix if hostler's drop-in cannot be written; empty if it can
}

// Kubelet is a kubelet on this host, which may own the shutdown.
type Kubelet struct {
	Evidence string                 // of its process; empty if there is none
	Refused  []trust.Process        // processes that are ignored although their name is kubelet
	Lock     *systemd.InhibitorLock // nil if it holds none
	// Grace is the shutdown grace period in its configuration. Zero is the kubelet's default, and
	// switches its graceful shutdown off.
	Grace  time.Duration
	Config string // the configuration file; empty if there is none
	Fault  string // why that file could not be read
}

// Systemd is what the service manager has loaded. If it reported only some facts, each missing one has
// an error: Err of a unit, RunErr or ScopesErr.
type Systemd struct {
	Missing bool   // this host does not run systemd
	Problem string // why it reported nothing
	Service systemd.Unit
	Login   systemd.Unit   // logind
	Server  systemd.Unit   // `hostler server`
	Targets []systemd.Unit // the targets of a shutdown
	// CtrlAltDel is started when these keys are pressed. Unless masked, it is an alias of reboot.target.
	CtrlAltDel systemd.Unit
	Run        systemd.Run // how systemd runs hostler
	// Orchestrators are the services that run a kubelet, some together with its runtime, and the
	// services that are stopped first.
	Orchestrators []systemd.Unit
	Scopes        map[string]bool // by name of a container's scope: whether it is stopped after hostler
	// Why the Run, and some of the Scopes, are not known; nil if they are.
	RunErr, ScopesErr error
	// DropIns has, by prefix of scopes ("cri-containerd"), the file that orders these scopes before
	// hostler; empty if there is none.
	DropIns map[string]string
	// WrongDropIns has, by prefix, the file of that name that does not order the scopes: it is a mask, or
	// lacks Before=.
	WrongDropIns map[string]string
}

// Conditions are the administrator's custom checks.
type Conditions struct {
	Directory string
	Number    int
	Problems  []Fix    // faults that the checks report
	Broken    []Fix    // files that cannot run as they are
	Unknown   []Fix    // checks whose result is Unknown
	Local     []string // types that are not published, because a kubelet owns the Node
}

// Runtimes are the container runtimes as they answer now.
type Runtimes struct {
	Checked bool
	List    []Runtime
	Dead    []DeadSocket
	Gone    []Gone // runtimes that ended, and are no longer expected
	// PodmanUnreachable is the socket of the system's Podman, if it has containers but nothing listens
	// there; else empty.
	PodmanUnreachable string
	PodmanUsers       []string // IDs of users with rootless containers
	// NotStarted names the containers that have not been started since the boot, although their restart
	// policy requires that.
	NotStarted []string
	// Ignored lists the labels and annotations that hostler ignores.
	Ignored []plan.Note
}

// DeadSocket is a socket at which no usable runtime answers.
type DeadSocket struct {
	Path  string
	Unfit string // why hostler cannot use the runtime that answers; empty if none answers
}

// Gone is a runtime that was found and has ended since.
type Gone struct {
	Name, Endpoint string
	Since          time.Time
}

// Runtime is a container runtime.
type Runtime struct {
	Name, Version, Endpoint string
	Ready                   bool
	Message                 string
}

// bare reports whether it is runc or crun: a state directory, without service and socket.
func (r Runtime) bare() bool { return r.Name == "runc" || r.Name == "crun" }

// State is hostler's state directory.
type State struct {
	Path     string
	Problem  string // why hostler cannot write there
	Free     uint64 // bytes
	Measured bool   // Free is known
}

// neededDelay is the delay that logind must grant: for the services that stop first, the phases and the
// margin.
func (f Facts) neededDelay() time.Duration {
	if len(f.Phases) == 0 {
		return 0
	}
	return f.stopFirstTime() + plan.Total(f.Phases) + plan.Margin
}

// stopFirstTime bounds how long the services that are stopped first may take.
func (f Facts) stopFirstTime() time.Duration { return (&shutdown.First{Names: f.StopFirst}).Bound() }

// hangs reports whether the service runs but does not answer.
func (f Facts) hangs() bool { return !f.Agent.Answers && f.Systemd.Service.ActiveState == "active" }

// delegated reports whether another owner guards the shutdown.
func (f Facts) delegated() bool {
	if f.Guard != nil {
		return f.Guard.State == shutdown.Delegated
	}
	return f.Kubelet.Lock != nil
}
