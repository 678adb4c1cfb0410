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

// Facts is what the checks judge, with a field for each subject of the checks. A part
// that could not be read says why.
type Facts struct {
	Agent         Agent
	Configuration Configuration
	Name          *Name // nil where the Node is switched off
	Protection    Protection
	Phases        []plan.PhaseSpec // none where shutdown protection is switched off
	StopFirst     []string         // services that are stopped before any pod
	Guard         *shutdown.Status // nil without an agent
	Logind        Logind
	Kubelet       Kubelet
	Systemd       Systemd
	Runtimes      Runtimes
	Collection    Collection
	Machine       Machine
	Cluster       *Cluster        // nil where this host is no node of one
	Etcd          *Etcd           // nil where the control plane is another one
	Plugin        *Plugin         // likewise
	Network       *Network        // nil where nothing is served beyond this host
	Server        *Server         // nil where nobody has looked for one
	Last          *journal.Record // nil where no shutdown is on record
	State         State
	Conditions    Conditions
	Reboots       Reboots
}

// Agent is the agent itself.
type Agent struct {
	Answers bool
	Problem string // why not
	PID     int
	Version string
}

// Configuration says whether the agent runs what its files say.
type Configuration struct {
	// File is the one that the agent was started with; empty if it is the default
	// one, which every command finds by itself.
	File string `json:"file,omitempty"`
	// Differs are the keys whose values in the files are not in force.
	Differs []string `json:"differs,omitempty"`
	Restart bool     `json:"restart,omitempty"` // a reload does not take them up
	Refused string   `json:"refused,omitempty"` // why the last reload did not, where it could have
	// Fault is what is wrong with the files: nothing would start with them.
	Fault string `json:"fault,omitempty"`
}

// path is the configuration file of the agent.
func (c Configuration) path() string { return cmp.Or(c.File, "/etc/hostler/hostler.yaml") }

// Trouble says why the files are not in force, several reasons on a line each; empty where
// they are.
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

// Fix is what a person types to have the files in force.
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

// flag has a command look at the files of the agent.
func (c Configuration) flag() string {
	switch {
	case c.File == "":
		return ""
	case strings.Contains(c.File, " "):
		return " --config '" + c.File + "'"
	}
	return " --config " + c.File
}

// Protection is the verdict of the condition hostler.io/ShutdownProtected, or
// what comes nearest to it without an agent.
type Protection struct {
	Protected bool
	Reason    string // of the condition
	Message   string
}

// Logind is the login manager as it answers now.
type Logind struct {
	Bus, Login error // why it was not reached; nil where it was
	Granted    time.Duration
	Locks      []systemd.InhibitorLock // of everybody
	Own        []systemd.InhibitorLock // those of hostler's that delay a shutdown
	Held       bool                    // this process holds one that logind waits for
	Scheduled  string                  // kind of a shutdown that it begins later, such as "reboot"; empty for none
	Begins     time.Time               // when it does
	Files      logindconf.Delay
}

// Kubelet is another owner of the shutdown on this host.
type Kubelet struct {
	Evidence string                 // of its process; empty where there is none
	Refused  []trust.Process        // those of a kubelet's name that are ignored
	Lock     *systemd.InhibitorLock // nil where it holds none
	// Grace is what its configuration asks for at a shutdown; zero is kubelet's
	// default, and switches its graceful shutdown off.
	Grace  time.Duration
	Config string // the file that says so; empty where there is none
	Fault  string // why that could not be read
}

// Systemd is what the service manager has loaded. What it has not told, where it told other
// things, says so itself: Err of each unit, and those below.
type Systemd struct {
	Missing bool   // there is none on this host
	Problem string // why it reported nothing
	Service systemd.Unit
	Login   systemd.Unit   // logind's
	Server  systemd.Unit   // of `hostler server`
	Targets []systemd.Unit // that bring the host down
	// CtrlAltDel is started at these keys, and an alias of reboot.target unless masked.
	CtrlAltDel systemd.Unit
	Run        systemd.Run // how it runs hostler
	// Orchestrators are the services that run a kubelet and its runtime in one, and the
	// others that are to be stopped first.
	Orchestrators []systemd.Unit
	Scopes        map[string]bool // of containers, by name: whether they wait for hostler at a shutdown
	// Why the Run, and some of the Scopes are not known; nil where they are.
	RunErr, ScopesErr error
	// DropIns is, by the prefix of scopes ("cri-containerd"), the file that has
	// them wait; empty where there is none.
	DropIns map[string]string
	// Blank is likewise the file of that name that does not: a mask, or one that
	// lacks the line.
	Blank map[string]string
}

// Conditions are the checks of the administrator's own.
type Conditions struct {
	Directory string
	Number    int
	Problems  []Fix    // that they report
	Broken    []Fix    // files that are not run as they are
	Unknown   []Fix    // those that say neither yes nor no
	Local     []string // types that are not published, since the Node is a kubelet's
}

// Runtimes are the container runtimes as they answer now.
type Runtimes struct {
	Checked bool
	List    []Runtime
	Dead    []DeadSocket // where a runtime should answer and none does
	Gone    []Gone       // those that were found, and are not expected any more
	// PodmanUnreachable is the socket of the host's Podman where there are containers of it
	// and nobody listens there; empty elsewhere.
	PodmanUnreachable string
	PodmanUsers       []string // IDs of users with containers of their own
	// NotStarted names the containers that should run by their restart policy, and have not been
	// started since the boot.
	NotStarted []string
	// Ignored are the labels and annotations that hostler passes over.
	Ignored []plan.Note
}

// DeadSocket is a socket at which no usable runtime answers.
type DeadSocket struct {
	Path  string
	Unfit string // why hostler cannot use what answers; empty where nothing does
}

// Gone is a runtime that was found and has ended since.
type Gone struct {
	Name, Endpoint string
	Since          time.Time
}

// Runtime is one of them.
type Runtime struct {
	Name, Version, Endpoint string
	Ready                   bool
	Message                 string
}

// bare reports that it is a directory of containers, without service and socket.
func (r Runtime) bare() bool { return r.Name == "runc" || r.Name == "crun" }

// State is the folder where hostler keeps what it learns.
type State struct {
	Path     string
	Problem  string // why nothing can be kept there
	Free     uint64 // bytes
	Measured bool   // Free is known
}

// needed is what the phases and their margin take.
func (f Facts) needed() time.Duration {
	if len(f.Phases) == 0 {
		return 0
	}
	return f.lead() + plan.Total(f.Phases) + plan.Margin
}

// lead is what services may take that are stopped first.
func (f Facts) lead() time.Duration { return (&shutdown.First{Names: f.StopFirst}).Bound() }

// hangs reports that the service runs, and does not answer.
func (f Facts) hangs() bool { return !f.Agent.Answers && f.Systemd.Service.ActiveState == "active" }

// delegated reports that another owner guards the shutdown.
func (f Facts) delegated() bool {
	if f.Guard != nil {
		return f.Guard.State == shutdown.Delegated
	}
	return f.Kubelet.Lock != nil
}
