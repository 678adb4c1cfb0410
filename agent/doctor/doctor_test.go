package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/logindconf"
)

const zzz = "/etc/systemd/logind.conf.d/zzz.conf"

// healthy is a host without faults.
func healthy() doctor.Facts {
	own := systemd.InhibitorLock{What: "shutdown", Who: "hostler", Why: "pods", Mode: "delay", PID: 812}
	ours := logindconf.Setting{Max: 36 * time.Second, Source: systemd.DropInPath}
	return doctor.Facts{
		Agent:      doctor.Agent{Answers: true, PID: 812, Version: "1.2.3"},
		Name:       &doctor.Name{Node: "web", HostName: "web"},
		Protection: doctor.Protection{Protected: true, Reason: status.ReasonArmed, Message: "a shutdown waits for the pods to stop"},
		Phases:     plan.Defaults(),
		Guard:      &shutdown.Status{State: shutdown.Armed, Reason: "shutdown lock held"},
		Logind: doctor.Logind{
			Granted: 36 * time.Second, Locks: []systemd.InhibitorLock{own}, Own: []systemd.InhibitorLock{own}, Held: true,
			Files: logindconf.Delay{Effective: ours, Others: logindconf.Setting{Max: 5 * time.Second}, DropIn: true},
		},
		Systemd: doctor.Systemd{
			Service: systemd.Unit{
				Name: doctor.Service, LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", FragmentPath: "/usr/lib/systemd/system/hostler.service",
				Type: "notify", NotifyAccess: "main", TimeoutStop: 30 * time.Second, FileDescriptorStoreMax: 2, MainPID: 812,
				After: []string{"dbus.service", "systemd-logind.service", "containerd.service"},
			},
			Targets:    []systemd.Unit{{Name: "reboot.target", JobTimeout: 30 * time.Minute}, {Name: "shutdown.target"}},
			CtrlAltDel: systemd.Unit{Name: "ctrl-alt-del.target", LoadState: "loaded"},
			Run:        systemd.Run{Watchdog: time.Minute},
			Scopes:     map[string]bool{"cri-containerd-1.scope": true},
			DropIns:    map[string]string{"cri-containerd": "/usr/lib/systemd/system/cri-containerd-.scope.d/10-hostler.conf"},
		},
		Runtimes: doctor.Runtimes{Checked: true, List: []doctor.Runtime{{Name: "containerd", Endpoint: "unix:///run/containerd/containerd.sock", Ready: true}}},
		Last:     &journal.Record{Graceful: true, Pods: make([]journal.PodRecord, 7)},
		State:    doctor.State{Path: "/var/lib/hostler", Free: 1 << 30, Measured: true},
		Machine: doctor.Machine{
			HighPercent: 85, LowPercent: 80,
			ImageFilesystems: []gc.FilesystemStatus{{Filesystem: "/var/lib/containerd", Device: "/dev/sdb1", Runtimes: []string{"containerd"}, CapacityBytes: 100 << 30, AvailableBytes: 28 << 30, UsedPercent: 72}},
		},
	}
}

func disarm(f *doctor.Facts, reason, why string) {
	f.Protection = doctor.Protection{Reason: reason, Message: "a shutdown will not wait for the pods to stop: " + why}
	f.Guard = &shutdown.Status{State: shutdown.Disarmed, Reason: why}
	f.Logind.Own, f.Logind.Locks, f.Logind.Held = nil, nil, false
}

func down(f *doctor.Facts) {
	f.Machine.ImageFilesystems = nil
	f.Agent = doctor.Agent{Problem: "no agent answers at /run/hostler/hostler.sock: connection refused"}
	f.Protection, f.Guard = doctor.Protection{}, nil
	f.Logind.Own, f.Logind.Locks, f.Logind.Held = nil, nil, false
	f.Logind.Granted = 5 * time.Second
	f.Logind.Files = logindconf.Delay{Effective: logindconf.Setting{Max: 5 * time.Second}, Others: logindconf.Setting{Max: 5 * time.Second}}
}

// stopped lists the checks that are unknown while the agent does not run.
func stopped(more ...string) []string { return unknownChecks("the agent is not running", more) }

// hung lists the checks that are unknown while the agent runs but does not answer.
func hung(more ...string) []string { return unknownChecks("the agent does not answer", more) }

func unknownChecks(why string, more []string) []string {
	want := []string{"unknown protection|not checked: " + why + "|see check agent"}
	for _, name := range more {
		want = append(want, "unknown "+name+"|not checked: "+why)
	}
	return append(want, "unknown image-filesystem|not checked: "+why)
}

func beside(f *doctor.Facts, grace time.Duration) {
	f.Protection.Reason = status.ReasonDelegated
	f.Guard = &shutdown.Status{State: shutdown.Delegated, Reason: "kubelet: delay lock"}
	lock := systemd.InhibitorLock{What: "shutdown", Who: "kubelet", Mode: "delay", PID: 900}
	f.Logind.Own, f.Logind.Held, f.Logind.Locks = nil, false, []systemd.InhibitorLock{lock}
	f.Kubelet = doctor.Kubelet{Evidence: "process kubelet, pid 900", Lock: &lock, Grace: grace, Config: "/var/lib/kubelet/config.yaml"}
}

func overridden(f *doctor.Facts) {
	f.Logind.Files.Effective = logindconf.Setting{Max: 8 * time.Second, Source: zzz}
	f.Logind.Files.After = f.Logind.Files.Effective
}

// setBy returns where keys are set, and that no file sets the others.
func setBy(places map[string]string) func(key string) string {
	return func(key string) string { return places[key] }
}

func TestAHealthyHostHasNothingToFix(t *testing.T) {
	r := doctor.Examine(healthy())
	if !r.Protected || r.Failed() || r.Count(doctor.OK) != len(r.Checks) || len(r.Checks) < 17 || r.Message != "" {
		t.Errorf("Examine() = %+v, want all ok", r)
	}
	for _, c := range r.Checks {
		if c.Message == "" || c.Hint != "" {
			t.Errorf("check %+v, want it to say what was found, and no fix", c)
		}
	}
}

// Ctrl-Alt-Del gives no logind notification, and works unless it is masked.
func TestShutdownsWithoutLogindNotificationAreListed(t *testing.T) {
	for state, ways := range map[string]string{
		"loaded": "shutdowns without logind notification: `systemctl start reboot.target`, SIGRTMIN+3 to +6 to PID 1 (from container managers) and Ctrl-Alt-Del. ",
		"masked": "shutdowns without logind notification: `systemctl start reboot.target`, SIGRTMIN+3 to +6 to PID 1 (from container managers). ",
	} {
		f := healthy()
		f.Systemd.CtrlAltDel.LoadState = state
		i := slices.IndexFunc(doctor.Examine(f).Checks, func(c doctor.Check) bool { return c.Name == "bypasses" })
		if i < 0 {
			t.Fatalf("Examine() has no check bypasses where Ctrl-Alt-Del is %s", state)
		}
		if c := doctor.Examine(f).Checks[i]; !strings.HasPrefix(c.Message, ways) {
			t.Errorf("where Ctrl-Alt-Del is %s doctor says %q, want it to begin %q", state, c.Message, ways)
		}
		f.Runtimes.List = append(f.Runtimes.List, doctor.Runtime{Name: "podman", Ready: true})
		if c := doctor.Examine(f).Checks[i]; !strings.Contains(c.Message, "Exception: Podman containers without a unit") {
			t.Errorf("beside a Podman doctor says %q, want it to promise nothing for its containers", c.Message)
		}
	}
}

// TestEachFaultIsFoundWithItsFix causes one fault at a time, and compares the checks that are not ok, the
// worst first.
func TestEachFaultIsFoundWithItsFix(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*doctor.Facts)
		want  []string // "status name" and parts of message or hint, with "|" between
	}{
		{"images that are collected on request only, on a filesystem that is full", func(f *doctor.Facts) {
			f.Collection.Images = &doctor.OnRequest{Runtimes: []string{"docker"}, Unused: 3, Bytes: 2 << 30, Full: []string{"/var/lib/docker"}, Setting: "imageGC: {enabled: true}"}
			f.Collection.Containers = &doctor.OnRequest{Runtimes: []string{"docker"}, Unused: 1, Setting: "containerGC: {enabled: true, maximumAge: 168h}"}
		}, []string{"warn collection|/var/lib/docker is above the high threshold, and no automatic collection for docker; removable on request: 3 unused images of 2.0 GiB and 1 unused dead container|imageGC: {enabled: true} and containerGC: {enabled: true, maximumAge: 168h} in /etc/hostler/hostler.yaml and run `systemctl restart hostler`"}},
		{"images that are collected on request only, with free space", func(f *doctor.Facts) {
			f.Collection.Images = &doctor.OnRequest{Runtimes: []string{"docker"}, Unused: 3, Setting: "imageGC: {enabled: true}"}
		}, nil},
		{"nothing to collect on request, on a filesystem that is full", func(f *doctor.Facts) {
			f.Collection.Images = &doctor.OnRequest{Runtimes: []string{"docker"}, Full: []string{"/var/lib/docker"}, Setting: "imageGC: {enabled: true}"}
		}, nil},
		{"files that only a restart puts into force", func(f *doctor.Facts) {
			f.Configuration = doctor.Configuration{Differs: []string{"log.level", "shutdown.gracePeriod"}, Restart: true}
		}, []string{"warn configuration|differ from the effective configuration: log.level, shutdown.gracePeriod|systemctl restart hostler"}},
		{"files that nobody had taken up", func(f *doctor.Facts) {
			f.Configuration.Differs = []string{"log.level"}
		}, []string{"warn configuration|effective configuration: log.level|hostler reload"}},
		{"files that this host cannot give", func(f *doctor.Facts) {
			f.Configuration = doctor.Configuration{Differs: []string{"node.reserved.cpu"}, Refused: "node.reserved.cpu: there are 2"}
		}, []string{"warn configuration|rejected: node.reserved.cpu: there are 2|correct the files"}},
		{"files with faults, behind an agent of before", func(f *doctor.Facts) {
			f.Configuration.Fault = "a.yaml:1: x: unknown\na.yaml:2: y: unknown"
		}, []string{"warn configuration|would not start with them: \na.yaml:1: x: unknown\na.yaml:2: y: unknown|hostler config check"}},
		{"files with faults at a place of their own", func(f *doctor.Facts) {
			f.Configuration.File, f.Configuration.Fault = "/srv/a.yaml", "/srv/a.yaml:1: x: unknown"
		}, []string{"warn configuration|/srv/a.yaml:1: x: unknown|`hostler config check --config /srv/a.yaml`"}},
		{"files with faults at a place with a blank", func(f *doctor.Facts) {
			f.Configuration.File, f.Configuration.Fault = "/srv/a b.yaml", "/srv/a b.yaml:1: x: unknown"
		}, []string{"warn configuration|`hostler config check --config '/srv/a b.yaml'`"}},
		{"files that this host cannot give, in two ways", func(f *doctor.Facts) {
			f.Configuration = doctor.Configuration{Differs: []string{"node.reserved.cpu"}, Refused: "node.reserved.cpu: there are 2\nnode.reserved.memory: there is 1Gi"}
		}, []string{"warn configuration|rejected: \nnode.reserved.cpu: there are 2\nnode.reserved.memory: there"}},
		{"files with faults, and no agent", func(f *doctor.Facts) {
			down(f)
			f.Configuration.Fault = "a.yaml:1: x: unknown"
		}, append([]string{"fail configuration|a.yaml:1: x: unknown|use the defaults|hostler config check|then systemctl", "fail agent"}, hung("lock")...)},
		{"a service that would start pods again", func(f *doctor.Facts) {
			f.Systemd.Orchestrators = []systemd.Unit{{Name: "k3s.service", LoadState: "loaded", ActiveState: "active"}, {Name: "rke2-server.service", LoadState: "not-found", ActiveState: "inactive"}}
		}, []string{"warn stop-first|k3s.service would restart pods|set shutdown: {enabled: true, stopFirst: [k3s.service]}|systemctl restart hostler"}},
		{"that service, which is stopped first", func(f *doctor.Facts) {
			f.StopFirst, f.Logind.Granted, f.Logind.Files.Effective.Max = []string{"k3s.service"}, 48*time.Second, 48*time.Second
			f.Systemd.Orchestrators = []systemd.Unit{{Name: "k3s.service", LoadState: "loaded", ActiveState: "active"}}
		}, nil},
		{"that service, for which logind grants no time", func(f *doctor.Facts) {
			f.StopFirst = []string{"k3s.service"}
			f.Systemd.Orchestrators = []systemd.Unit{{Name: "k3s.service", LoadState: "loaded", ActiveState: "active"}}
		}, []string{"fail delay|of the 48s"}},
		{"a service to stop first that is not there", func(f *doctor.Facts) {
			f.StopFirst, f.Logind.Granted, f.Logind.Files.Effective.Max = []string{"k3s-agent.service"}, 48*time.Second, 48*time.Second
			f.Systemd.Orchestrators = []systemd.Unit{{Name: "k3s-agent.service", LoadState: "not-found", ActiveState: "inactive"}}
		}, []string{"warn stop-first|k3s-agent.service, which should stop before the pods, does not exist|shutdown.stopFirst"}},
		{"another file sets too little", func(f *doctor.Facts) {
			overridden(f)
			f.Logind.Granted = 8 * time.Second
			f.Protection = doctor.Protection{Reason: status.ReasonDelayTooShort}
		}, []string{
			"fail protection|less time than configured|see the checks below",
			"fail delay|grants 8s, set by " + zzz + ", of the 36s|shortened to|" + zzz + " sets InhibitDelayMaxSec= to 8s and is read after|raise it there to 36 or more",
		}},
		{"another file sets too little, and logind has not read it", overridden, []string{
			"warn delay-files|grants 36s now, but would grant only 8s, set by " + zzz + ", after|raise it there",
		}},
		{"the drop-in is gone, and logind has not noticed", func(f *doctor.Facts) {
			f.Logind.Files.Effective, f.Logind.Files.DropIn = f.Logind.Files.Others, false
		}, []string{"warn delay-files|would grant only 5s, its default, after|systemctl restart hostler"}},
		{"the service may not write the drop-in", func(f *doctor.Facts) {
			f.Logind.Granted, f.Logind.Files.Effective, f.Logind.Files.DropIn = 5*time.Second, f.Logind.Files.Others, false
			f.Logind.WriteHint = "remove ReadOnlyPaths="
			f.Protection = doctor.Protection{Reason: status.ReasonDelayTooShort}
		}, []string{"fail protection", "fail delay|grants 5s|remove ReadOnlyPaths="}},
		{"the service may not write the drop-in, and logind has not noticed that it is gone", func(f *doctor.Facts) {
			f.Logind.Files.Effective, f.Logind.Files.DropIn = f.Logind.Files.Others, false
			f.Logind.WriteHint = "remove ReadOnlyPaths="
		}, []string{"warn delay-files|would grant only 5s|remove ReadOnlyPaths="}},
		{"the drop-in is masked", func(f *doctor.Facts) {
			f.Logind.Granted, f.Logind.Files.Effective = 5*time.Second, f.Logind.Files.Others
			f.Logind.Files.MaskedBy = "/etc/systemd/logind.conf.d/zz-hostler.conf"
			f.Protection = doctor.Protection{Reason: status.ReasonDelayTooShort}
		}, []string{"fail protection", "fail delay|rm /etc/systemd/logind.conf.d/zz-hostler.conf: it masks " + systemd.DropInPath}},
		{"logind has an older reading", func(f *doctor.Facts) {
			f.Logind.Granted = 5 * time.Second
			f.Protection = doctor.Protection{Reason: status.ReasonDelayTooShort}
		}, []string{"fail protection", "fail delay|systemctl restart systemd-logind"}},
		{"files that cannot be read, and a value that is none", func(f *doctor.Facts) {
			f.Logind.Files.Unreadable = errors.Join(errors.New("open /etc/a.conf: denied"), errors.New("open /etc/b.conf: denied"))
			f.Logind.Files.Invalid = []logindconf.Invalid{{Path: zzz, Value: "soon"}}
		}, []string{"warn delay-files|/etc/a.conf: denied; open /etc/b.conf: denied|" + zzz + " sets InhibitDelayMaxSec=soon, which logind ignores|systemd.time(7)"}},
		{"a torn file", func(f *doctor.Facts) {
			f.Logind.Files.Broken, f.Logind.Files.Effective = "/etc/systemd/logind.conf.d/a.conf", f.Logind.Files.Others
			f.Logind.Granted = 5 * time.Second
			f.Protection = doctor.Protection{Reason: status.ReasonDelayTooShort}
		}, []string{
			"fail protection", "fail delay|fix or remove /etc/systemd/logind.conf.d/a.conf, where logind stops reading", "warn delay-files|a.conf is damaged",
		}},
		{"no bus", func(f *doctor.Facts) {
			disarm(f, status.ReasonNoBus, "no bus")
			f.Logind.Bus = fmt.Errorf("%w: %w", systemd.ErrNoBus, fs.ErrNotExist)
		}, []string{"fail protection|NoBus", "fail dbus|systemctl start dbus.socket|apt-get install dbus"}},
		{"no logind", func(f *doctor.Facts) {
			disarm(f, status.ReasonNoLogind, "gone")
			f.Logind.Login = systemd.ErrNoLogind
		}, []string{"fail protection|NoLogind", "fail logind|systemctl restart systemd-logind"}},
		{"no logind, and another file that sets too little", func(f *doctor.Facts) {
			disarm(f, status.ReasonNoLogind, "gone")
			overridden(f)
			f.Logind.Login = systemd.ErrNoLogind
		}, []string{"fail protection|NoLogind", "fail logind|systemctl restart systemd-logind", "warn delay-files|would grant 8s, set by " + zzz + " of the 36s|raise it there"}},
		{"logind is there again", func(f *doctor.Facts) { disarm(f, status.ReasonNoLogind, "gone") }, []string{
			"fail protection|NoLogind", "fail lock|retries within 3s|last error: gone|wait a few seconds",
		}},
		{"an agent that has just started", func(f *doctor.Facts) {
			disarm(f, status.ReasonStarting, "not started")
			f.Logind.Own, f.Logind.Locks, f.Logind.Granted = nil, nil, 5*time.Second
			f.Logind.Files = logindconf.Delay{Effective: logindconf.Setting{Max: 5 * time.Second}}
		}, []string{"fail protection|see the checks below", "fail lock|not armed yet|run `hostler doctor` again", "fail delay|logind grants 5s, its default|see the check lock"}},
		{"armed, but logind lists no lock", func(f *doctor.Facts) { f.Logind.Own, f.Logind.Locks = nil, nil }, []string{
			"fail protection|would not wait|see the checks below", "fail lock|logind does not list it|systemctl restart hostler",
		}},
		{"armed, but the lock is in other hands", func(f *doctor.Facts) { f.Logind.Held = false }, []string{"fail protection", "fail lock|hostler does not hold it"}},
		{"armed, but logind hangs by now", func(f *doctor.Facts) { f.Logind.Login = context.DeadlineExceeded }, []string{
			"fail protection|would not wait|see the checks below", "fail logind|deadline exceeded",
		}},
		{"a drain past a bus that is gone", func(f *doctor.Facts) { f.Guard.State, f.Logind.Bus = shutdown.Draining, systemd.ErrNoBus }, []string{"fail dbus"}},
		{"two locks", func(f *doctor.Facts) { f.Logind.Own = append(f.Logind.Own, f.Logind.Own[0]) }, []string{"warn lock|2 hostler locks"}},
		{"disarmed for a reason of its own", func(f *doctor.Facts) { disarm(f, status.ReasonNoLock, "access denied") }, []string{
			"fail protection|access denied", "fail lock|not armed: access denied",
		}},
		{"labels that mean nothing", func(f *doctor.Facts) {
			for range 6 {
				f.Runtimes.Ignored = append(f.Runtimes.Ignored, plan.Note{Namespace: "shop", Pod: "web", Container: "c", Key: "shutdown.hostler.io/grace", Value: strings.Repeat("9", 99), Problem: "is not a label of hostler"})
			}
		}, []string{"warn labels|shop/web, container c: ignored shutdown.hostler.io/grace=\"9999|9...\": it is not a label of hostler; |; and 1 more: `hostler shutdown plan` lists all|docs/reference/labels.md"}},
		{"a full disk", func(f *doctor.Facts) {
			f.Machine.Pressures = []doctor.Fix{{Message: "DiskPressure is True: /run has 0 of 4Gi free", Command: "run `du -xh /run` to see what fills it"}}
		}, []string{"warn pressure|/run has 0 of 4Gi free|du -xh /run"}},
		{"a Node by node.name", func(f *doctor.Facts) { f.Name = &doctor.Name{Node: "db", Configured: true, HostName: "web"} }, nil},
		{"a host that gets its name late", func(f *doctor.Facts) {
			f.Name = &doctor.Name{Node: "localhost", HostName: "localhost", NameProblem: "the host name is localhost", Shared: true, Starting: true}
		}, []string{"warn node-name|Node and Lease are not written|hostnamectl set-hostname NAME|set node.name"}},
		{"one that has none in a fleet", func(f *doctor.Facts) {
			f.Name = &doctor.Name{Node: "localhost", HostName: "localhost", NameProblem: "the host name is localhost", Shared: true}
		}, []string{"fail node-name|without one there is no Node and no Lease|hostnamectl set-hostname NAME"}},
		{"one that has none on its own", func(f *doctor.Facts) {
			f.Name = &doctor.Name{Node: "localhost", HostName: "Rack_7", NameProblem: "host name: bad"}
		}, []string{"warn node-name|host name: bad; its Node is named localhost, on this host only|hostnamectl set-hostname NAME"}},
		{"a host that was renamed", func(f *doctor.Facts) { f.Name = &doctor.Name{Node: "web", HostName: "Web-2", Shared: true} }, []string{
			"warn node-name|now named web-2, but its Node is still web|to rename the Node: hostler leave; systemctl restart hostler, which registers it as web-2|node.name: web,",
		}},
		{"a host that was renamed before it was registered", func(f *doctor.Facts) {
			f.Name = &doctor.Name{Node: "web", HostName: "web-2", Shared: true, Unregistered: true}
		}, []string{
			"warn node-name|to rename the Node: systemctl restart hostler, which registers it as web-2",
		}},
		{"a host that lost its name", func(f *doctor.Facts) { f.Name = &doctor.Name{Node: "web", HostName: "localhost", Shared: true} }, []string{
			"warn node-name|was named web when the agent started, and has no valid name|set node.name: web, and systemctl restart hostler",
		}},
		{"switched off", func(f *doctor.Facts) {
			disarm(f, status.ReasonSwitchedOff, "off")
			f.Phases = nil
			f.Logind.Files.DropIn = false
		}, []string{
			"warn protection|as configured|shutdown.enabled: auto",
		}},
		{"switched off by a file in conf.d", func(f *doctor.Facts) {
			disarm(f, status.ReasonSwitchedOff, "off")
			f.Phases, f.Logind.Files.DropIn = nil, false
			f.Configuration.Origin = setBy(map[string]string{"shutdown": "b.yaml:2", "shutdown.gracePeriod": "b.yaml:3"})
		}, []string{"warn protection|as configured|to protect pods, set shutdown.gracePeriod above 0s in b.yaml:3; then systemctl restart hostler"}},
		{"switched off by two files", func(f *doctor.Facts) {
			disarm(f, status.ReasonSwitchedOff, "off")
			f.Phases, f.Logind.Files.DropIn = nil, false
			f.Configuration.Origin = setBy(map[string]string{"shutdown.enabled": "a.yaml:1", "shutdown.gracePeriod": "b.yaml:3"})
		}, []string{"warn protection|set shutdown.enabled: auto in a.yaml:1 and shutdown.gracePeriod above 0s in b.yaml:3; then"}},
		{"images that are collected on request only, and a file in conf.d with settings of collections", func(f *doctor.Facts) {
			f.Collection.Images = &doctor.OnRequest{Runtimes: []string{"docker"}, Unused: 3, Full: []string{"/var/lib/docker"}, Setting: "imageGC: {enabled: true}"}
			f.Collection.Containers = &doctor.OnRequest{Runtimes: []string{"docker"}, Unused: 1, Setting: "containerGC: {enabled: true, maximumAge: 168h}"}
			f.Configuration.Origin = setBy(map[string]string{"imageGC": "b.yaml:1", "imageGC.interval": "b.yaml:2", "containerGC.enabled": "b.yaml:4"})
		}, []string{"warn collection|set imageGC: {enabled: true} in b.yaml:1 and containerGC: {enabled: true, maximumAge: 168h} in b.yaml:4 and run"}},
		{"no runtime, and a list of runtimes in conf.d", func(f *doctor.Facts) {
			f.Runtimes.List, f.Configuration.Origin = nil, setBy(map[string]string{"runtimes": "b.yaml:7"})
		}, []string{"warn runtimes|name its socket under runtimes in b.yaml:7"}},
		{"switched off without a bus", func(f *doctor.Facts) {
			disarm(f, status.ReasonSwitchedOff, "off")
			f.Phases, f.Logind.Files.DropIn, f.Logind.Bus = nil, false, systemd.ErrNoBus
		}, []string{"warn protection", "warn dbus"}},
		{"switched off with what an agent of before has left", func(f *doctor.Facts) {
			own := f.Logind.Own
			disarm(f, status.ReasonSwitchedOff, "off")
			f.Phases, f.Logind.Own = nil, own
		}, []string{"warn protection", "warn lock|unneeded", "warn delay-files|is not needed"}},
		{"somebody blocks shutdowns, and somebody delays them", func(f *doctor.Facts) {
			f.Logind.Locks = append(f.Logind.Locks,
				systemd.InhibitorLock{What: "sleep:shutdown", Who: "apt", Why: "upgrading", Mode: "block", PID: 9},
				systemd.InhibitorLock{What: "shutdown", Who: "db", Why: "flush", Mode: "delay", PID: 10},
				systemd.InhibitorLock{What: "sleep", Who: "radio", Mode: "block", PID: 11})
		}, []string{`warn other-locks|blocked by apt (pid 9, user 0, "upgrading"); a shutdown also waits for db|wait until the process ends, or stop it: until then a reboot may be refused`}},
		{"a user has many locks with long texts", func(f *doctor.Facts) {
			for range 8 {
				f.Logind.Locks = append(f.Logind.Locks, systemd.InhibitorLock{What: "shutdown", Who: strings.Repeat("w", 200), Why: strings.Repeat("y", 200), Mode: "block", PID: 9})
			}
		}, []string{"warn other-locks|" + strings.Repeat("w", 100) + ` (pid 9, user 0, "` + strings.Repeat("y", 100) + `") and 3 more`}},
		{"no agent", func(f *doctor.Facts) {
			down(f)
			f.Systemd.Service.ActiveState, f.Systemd.Service.MainPID = "inactive", 0
		}, append([]string{"fail agent|hostler.service is inactive, so that a shutdown would not wait for the pods: no agent answers|connection refused | systemctl start hostler; if that fails: journalctl"}, stopped("lock")...)},
		{"no agent, its lock and its drop-in left behind", func(f *doctor.Facts) {
			own, files := f.Logind.Own, f.Logind.Files
			down(f)
			f.Logind.Own, f.Logind.Files = own, files
			f.Systemd.Service.ActiveState, f.Systemd.Service.MainPID = "failed", 0
		}, append([]string{"fail agent|hostler.service is failed", "warn lock|of pid 812, but no agent answers", "warn delay-files|left by an agent that did not exit cleanly|rm " + systemd.DropInPath}, stopped()...)},
		{"an agent that hangs", func(f *doctor.Facts) {
			own, files := f.Logind.Own, f.Logind.Files
			down(f)
			f.Logind.Own, f.Logind.Files = own, files
		}, append([]string{"fail agent|hostler hangs, so that| | systemctl restart hostler, which stops no container; if that fails", "warn lock|no agent answers| | systemctl restart hostler"}, hung()...)},
		{"no agent, and it could not raise the delay", func(f *doctor.Facts) {
			down(f)
			overridden(f)
		}, append([]string{"fail agent", "fail delay|could not raise logind's limit|raise it there to 36"}, hung("lock")...)},
		{"beside a kubelet", func(f *doctor.Facts) { beside(f, 30*time.Second) }, nil},
		{"beside a kubelet that hostler's drop-in cuts down", func(f *doctor.Facts) { beside(f, time.Minute) }, []string{
			"fail kubelet|needs 1m0s|limits logind to 36s|rm " + systemd.DropInPath,
		}},
		{"beside a kubelet that another file cuts down", func(f *doctor.Facts) {
			beside(f, time.Minute)
			overridden(f)
			f.Logind.Granted = 8 * time.Second
		}, []string{
			"fail kubelet|needs 1m0s|set by " + zzz + "|in " + zzz + " to 60 or more",
		}},
		{"beside a kubelet whose file is gone", func(f *doctor.Facts) {
			beside(f, time.Minute)
			f.Logind.Granted, f.Logind.Files = 5*time.Second, logindconf.Delay{Effective: logindconf.Setting{Max: 5 * time.Second}}
		}, []string{"fail kubelet|logind grants 5s, its default | systemctl restart kubelet"}},
		{"beside a kubelet whose file logind has not read", func(f *doctor.Facts) {
			beside(f, time.Minute)
			f.Logind.Granted = 5 * time.Second
			f.Logind.Files = logindconf.Delay{Effective: logindconf.Setting{Max: time.Minute, Source: "/etc/systemd/logind.conf.d/99-kubelet.conf"}}
		}, []string{"fail kubelet|logind grants 5s | systemctl restart systemd-logind"}},
		{"beside a kubelet that failed to take its lock", func(f *doctor.Facts) {
			f.Kubelet = doctor.Kubelet{Evidence: "process kubelet, pid 900", Grace: time.Minute, Config: "/var/lib/kubelet/config.yaml"}
		}, []string{"warn kubelet|holds no lock|systemctl restart kubelet"}},
		{"beside a kubelet whose configuration is torn", func(f *doctor.Facts) {
			f.Kubelet = doctor.Kubelet{Evidence: "process kubelet, pid 900", Fault: "read it: bad"}
		}, []string{"warn kubelet|read it: bad"}},
		{"no systemd", func(f *doctor.Facts) { f.Systemd = doctor.Systemd{Missing: true} }, []string{"warn unit|no systemd on this host"}},
		{"neither systemd nor bus, and no agent", func(f *doctor.Facts) {
			down(f)
			f.Systemd, f.Logind.Bus = doctor.Systemd{Missing: true}, fmt.Errorf("no bus: %w", fs.ErrNotExist)
			f.Runtimes.List[0].Ready = false
		}, []string{
			"fail agent|hostler is not running, so|start `hostler agent`; if that fails: see its log",
			"fail dbus|start the system bus, and a logind such as elogind", "fail runtimes|start containerd; if it runs already, see its log", "warn unit|no systemd on this host",
			"unknown protection|the agent is not running", "unknown image-filesystem",
		}},
		{"systemd that was not asked", func(f *doctor.Facts) { f.Systemd = doctor.Systemd{Problem: "denied"} }, []string{"warn unit|denied|only root"}},
		{"no unit", func(f *doctor.Facts) { f.Systemd.Service = systemd.Unit{LoadState: "not-found"} }, []string{"warn unit|does not exist (not-found)"}},
		{"a masked unit", func(f *doctor.Facts) { f.Systemd.Service.LoadState = "masked" }, []string{"fail unit|systemctl unmask hostler.service &&"}},
		{"a unit that is masked until the next boot, and so no agent", func(f *doctor.Facts) {
			down(f)
			f.Systemd.Service.LoadState, f.Systemd.Service.UnitFileState, f.Systemd.Service.ActiveState = "masked", "masked-runtime", "inactive"
		}, []string{
			"fail agent|hostler.service is masked, so | systemctl unmask --runtime hostler.service && systemctl enable --now hostler; if", "unknown protection", "unknown lock", "unknown image-filesystem",
		}},
		{"a masked logind", func(f *doctor.Facts) {
			disarm(f, status.ReasonNoLogind, "gone")
			f.Logind.Login, f.Systemd.Login = systemd.ErrNoLogind, systemd.Unit{LoadState: "masked", UnitFileState: "masked"}
		}, []string{"fail protection|NoLogind", "fail logind|is masked | systemctl unmask systemd-logind.service && systemctl restart systemd-logind"}},
		{"a service that reloads", func(f *doctor.Facts) { f.Systemd.Service.ActiveState = "reloading" }, nil},
		{"a service that drains at its stop", func(f *doctor.Facts) { f.Systemd.Service.ActiveState = "deactivating" }, nil},
		{"an agent beside its unit that is not enabled", func(f *doctor.Facts) {
			f.Systemd.Service.ActiveState, f.Systemd.Service.UnitFileState, f.Systemd.Service.MainPID = "inactive", "disabled", 0
		}, []string{"warn unit|was not started by hostler.service|will not start at the next boot|systemctl enable hostler"}},
		{"a unit that somebody edited", func(f *doctor.Facts) {
			u := &f.Systemd.Service
			u.NotifyAccess, u.FileDescriptorStoreMax, u.TimeoutStop, u.Type, u.Restart, u.NeedDaemonReload = "none", 0, 5*time.Second, "exec", "no", true
			u.DropInPaths = []string{"/etc/systemd/system/hostler.service.d/override.conf"}
		}, []string{"warn unit|daemon-reload|under [Service], then systemctl daemon-reload && systemctl restart hostler|NotifyAccess=main (/usr/lib/systemd/system/hostler.service and /etc/systemd/system/hostler.service.d/override.conf)|FileDescriptorStoreMax=2|Restart=on-failure|TimeoutStopSec=30|Type=notify"}},
		{"drop-ins that are read after those that systemctl edit writes", func(f *doctor.Facts) {
			f.Systemd.Service.FileDescriptorStoreMax, f.Systemd.Service.DropInPaths = 0, []string{"/etc/systemd/system/hostler.service.d/override.conf", "/etc/systemd/system/hostler.service.d/x.conf"}
			f.Systemd.Targets[0].JobTimeout, f.Systemd.Targets[0].DropInPaths = time.Second, []string{"/etc/systemd/system/reboot.target.d/soon.conf"}
		}, []string{
			"warn unit| set FileDescriptorStoreMax=2 under [Service] in /etc/systemd/system/hostler.service.d/x.conf, then systemctl daemon-reload && systemctl restart hostler",
			"warn job-timeouts| set JobTimeoutSec=30min under [Unit] in /etc/systemd/system/reboot.target.d/soon.conf, then systemctl daemon-reload",
		}},
		{"a unit that the runtime outlives not", func(f *doctor.Facts) { f.Systemd.Service.After = []string{"dbus.service"} }, []string{
			"warn unit-order|After=containerd.service",
		}},
		{"a unit of before the one between Docker and CRI", func(f *doctor.Facts) {
			f.Systemd.Service.After, f.Systemd.DropIns["docker"] = append(f.Systemd.Service.After, "docker.service"), "/usr/lib/systemd/system/docker-.scope.d/10-hostler.conf"
			f.Runtimes.List = append(f.Runtimes.List, doctor.Runtime{Name: "docker", Endpoint: "unix:///run/cri-dockerd.sock", Ready: true})
		}, []string{"warn unit-order|After=cri-docker.service under"}},
		{"a unit that knows no snaps", func(f *doctor.Facts) {
			f.Runtimes.List = append(f.Runtimes.List, doctor.Runtime{Name: "containerd", Endpoint: "unix:///var/snap/microk8s/common/run/containerd.sock", Ready: true})
		}, []string{"warn unit-order|After=snap.microk8s.daemon-containerd.service under"}},
		{"no drop-in for the runtime's scopes", func(f *doctor.Facts) { f.Systemd.DropIns, f.Systemd.Scopes["cri-containerd-1.scope"] = nil, false }, []string{
			"warn scopes|the scopes of containerd are not ordered|/etc/systemd/system/cri-containerd-.scope.d/10-hostler.conf",
		}},
		{"a mask in place of the scopes' drop-in", func(f *doctor.Facts) {
			f.Systemd.WrongDropIns = f.Systemd.DropIns
			f.Systemd.WrongDropIns["cri-containerd"], f.Systemd.DropIns = "/etc/systemd/system/cri-containerd-.scope.d/10-hostler.conf", nil
			f.Systemd.Scopes["cri-containerd-1.scope"] = false
		}, []string{
			"warn scopes|the scopes of containerd are not ordered|10-hostler.conf does not say Before=hostler.service | rm /etc/systemd/system/cri-containerd-.scope.d/10-hostler.conf; then systemctl daemon-reload",
		}},
		{"a packaged drop-in that lost its text", func(f *doctor.Facts) {
			f.Systemd.WrongDropIns, f.Systemd.DropIns = f.Systemd.DropIns, nil
		}, []string{
			`warn scopes|does not say Before=hostler.service | install the package, or write "[Unit]"`,
		}},
		{"no drop-in for scopes of a runtime that is not in the list", func(f *doctor.Facts) { f.Systemd.Scopes["libpod-1.scope"] = false }, []string{
			"warn scopes|the scopes of libpod are not ordered|/etc/systemd/system/libpod-.scope.d/10-hostler.conf",
		}},
		{"scopes from before the drop-in", func(f *doctor.Facts) { f.Systemd.Scopes["cri-containerd-0.scope"] = false }, []string{
			"warn scopes|1 of 2 container scopes, such as cri-containerd-0.scope|systemctl daemon-reload",
		}},
		{"a target that is forced too early", func(f *doctor.Facts) { f.Systemd.Targets[0].JobTimeout = 30 * time.Second }, []string{
			"warn job-timeouts|reboot.target is forced after 30s|systemctl edit reboot.target, to set JobTimeoutSec=30min",
		}},
		{"phases that take longer than systemd's half an hour", func(f *doctor.Facts) {
			f.Phases = []plan.PhaseSpec{{Name: "regular", Grace: 40 * time.Minute}}
			f.Logind.Granted = time.Hour
			f.Logind.Files.Effective.Max = time.Hour
		}, []string{
			"warn job-timeouts|reboot.target is forced after 30m0s, but the phases take 40m6s|to set JobTimeoutSec=46min",
		}},
		{"another file sets a fraction of a second too little", func(f *doctor.Facts) {
			f.Phases = []plan.PhaseSpec{{Name: "regular", Grace: 30400 * time.Millisecond}}
			overridden(f)
			f.Logind.Granted = 8 * time.Second
		}, []string{"fail delay|raise it there to 37 or more"}},
		{"a runtime that is down", func(f *doctor.Facts) {
			f.Runtimes.List[0].Ready, f.Runtimes.List[0].Message = false, "refused"
			f.Runtimes.Dead = []doctor.DeadSocket{{Path: "/run/crio/crio.sock"}}
			f.Protection = doctor.Protection{Reason: status.ReasonPodsOutOfReach, Message: "hostler could not stop those of crio"}
		}, []string{"fail protection|could not stop those of crio", "fail runtimes|/run/crio/crio.sock|refused|systemctl start containerd; if it runs already: journalctl -u containerd; if it hangs: systemctl restart containerd"}},
		{"containers of runc alone, in no scopes", func(f *doctor.Facts) {
			f.Runtimes.List = append(f.Runtimes.List, doctor.Runtime{Name: "runc", Endpoint: "/run/runc", Ready: true})
		}, nil},
		{"containers of runc alone, in scopes that nothing orders", func(f *doctor.Facts) { f.Systemd.Scopes["runc-web.scope"] = false }, []string{
			"warn scopes|the scopes of runc are not ordered|/etc/systemd/system/runc-.scope.d/10-hostler.conf",
		}},
		{"a state root that others may write", func(f *doctor.Facts) {
			f.Runtimes.List = append(f.Runtimes.List, doctor.Runtime{Name: "runc", Endpoint: "/run/runc", Message: "others than its owner may write into it"})
		}, []string{"fail runtimes|runtime runc at /run/runc is not ready|others than its owner|ls -ld /run/runc"}},
		{"no runtime", func(f *doctor.Facts) { f.Runtimes.List = nil }, []string{"warn runtimes|no container runtime found|runtimes in /etc/hostler/hostler.yaml"}},
		{"no runtime, and files at a place of their own", func(f *doctor.Facts) { f.Runtimes.List, f.Configuration.File = nil, "/srv/a.yaml" }, []string{"warn runtimes|name its socket under runtimes in /srv/a.yaml"}},
		{"a Docker that is too old", func(f *doctor.Facts) {
			f.Runtimes.Dead = []doctor.DeadSocket{{Path: "/run/docker.sock", Unfit: "API version 1.39 is not supported"}}
		}, []string{"warn runtimes|unsupported runtime at /run/docker.sock|API version 1.39|upgrade it"}},
		{"a distribution's containerd that is down", func(f *doctor.Facts) {
			f.Runtimes.List = append(f.Runtimes.List, doctor.Runtime{Name: "containerd", Endpoint: "unix:///run/k3s/containerd/containerd.sock", Message: "refused"})
		}, []string{"fail runtimes|runtime containerd at unix:///run/k3s/containerd/containerd.sock is not ready|check the service of this containerd: k3s"}},
		{"a Docker that has ended", func(f *doctor.Facts) {
			f.Runtimes.Gone = []doctor.Gone{{Name: "docker", Endpoint: "unix:///run/docker.sock", Since: time.Unix(1, 0)}}
		}, []string{"warn runtimes|runtime docker at unix:///run/docker.sock ended at 1970-01-01T00:00:01Z|systemctl start docker"}},
		{"Podman's containers, and nobody at its socket", func(f *doctor.Facts) { f.Runtimes.PodmanUnreachable = "/run/podman/podman.sock" }, []string{"warn podman|nothing listens at /run/podman/podman.sock|systemctl enable --now podman.socket"}},
		{"users with containers of their own", func(f *doctor.Facts) { f.Runtimes.PodmanUsers = []string{"1000", "1001"} }, nil},
		{"runtimes not asked yet", func(f *doctor.Facts) { f.Runtimes = doctor.Runtimes{} }, []string{"warn runtimes|again in some seconds"}},
		{"a phase without time", func(f *doctor.Facts) {
			f.Phases = []plan.PhaseSpec{{Name: "priority-0"}, {Name: "priority-5", Priority: 5, Grace: 30 * time.Second}}
		}, []string{
			"warn protection|a shutdown waits for the pods|see check phases",
			"warn phases|pods of phase priority-0 may be killed at once|shutdown.byPriority",
		}},
		{"a shutdown in which pods were killed", func(f *doctor.Facts) {
			f.Last = &journal.Record{Graceful: true, Pods: []journal.PodRecord{{Outcome: journal.Killed}, {Outcome: journal.Stopped}}}
		}, []string{
			"warn last-shutdown|pods killed at the end of their grace period: 1 of 2|hostler ps --last-shutdown",
		}},
		{"a shutdown that was not graceful", func(f *doctor.Facts) { f.Last = &journal.Record{Error: "the power was cut"} }, []string{
			"warn last-shutdown|the power was cut|hostler ps --last-shutdown",
		}},
		{"a container that does not start again", func(f *doctor.Facts) {
			f.Guard.Restarts = []journal.Restart{{Name: "web", Outcome: journal.Restarted}, {Name: "gpu", Outcome: journal.RestartFailed}}
		}, []string{"warn last-shutdown|cannot be restarted: gpu|hostler ps --last-shutdown"}},
		{"a container that waits for its mount", func(f *doctor.Facts) {
			f.Guard.Restarts = []journal.Restart{{Name: "web", Outcome: journal.Restarted}, {Name: "db", Reason: "waits for mnt-nas.mount (/mnt/nas)"}, {Name: "next"}}
		}, []string{"warn last-shutdown|not restarted yet: db (waits for mnt-nas.mount (/mnt/nas))|systemctl --failed"}},
		{"one container that does not start again, and one that waits, of which only the ID is known", func(f *doctor.Facts) {
			f.Guard.Restarts = []journal.Restart{{Name: "gpu", Outcome: journal.RestartFailed}, {ID: "30d09f47dfb5", Reason: "waits for its runtime"}}
		}, []string{"warn last-shutdown|cannot be restarted: gpu\ncontainers not restarted yet: 30d09f47dfb5 (waits for its runtime)|hostler ps --last-shutdown"}},
		{"containers that wait for runtimes that do not answer, after a shutdown in which a pod was killed", func(f *doctor.Facts) {
			f.Guard.Restarts = []journal.Restart{
				{Name: "db", Runtime: "docker", Reason: journal.AwaitsRuntime},
				{Name: "web", Runtime: "docker", Reason: journal.AwaitsRuntime},
				{Name: "dns", Runtime: "podman", Reason: journal.AwaitsRuntime},
			}
			f.Last = &journal.Record{Graceful: true, Pods: []journal.PodRecord{{Outcome: journal.Killed}, {Outcome: journal.Stopped}}}
		}, []string{
			"warn last-shutdown|not restarted yet: db (waits for its runtime to answer), web (|; no answer from docker, podman\npods killed at the end of their grace period: 1 of 2 | " +
				"|systemctl start docker; if it runs already: journalctl -u docker; if it hangs: systemctl restart docker, which stops its containers unless its live-restore is on; to have it started at boot: systemctl enable docker; systemctl start podman.socket|systemctl enable podman.socket\nrun `hostler ps --last-shutdown`",
		}},
		{"a shutdown that was cancelled", func(f *doctor.Facts) { f.Last = &journal.Record{CancelledAt: time.Unix(1, 0)} }, nil},
		{"no shutdown on record", func(f *doctor.Facts) { f.Last = nil }, nil},
		{"a lock of an earlier process", func(f *doctor.Facts) { f.Logind.Own[0].PID = 700 }, nil},
		{"a drain", func(f *doctor.Facts) { f.Guard.State, f.Logind.Own = shutdown.Released, nil }, nil},
		{"a Node whose address no interface has", func(f *doctor.Facts) {
			f.Machine.Network = []doctor.Fix{{Message: "NetworkUnavailable is True: node.address.internal: no interface has an address for 192.0.2.71", Command: "compare"}}
		}, []string{"warn node-network|NetworkUnavailable is True: node.address.internal: no interface has|compare"}},
		{"a check of one's own that found a problem", func(f *doctor.Facts) {
			f.Conditions = doctor.Conditions{Number: 1, Problems: []doctor.Fix{{Message: "example.com/Bad is True: it smokes", Command: "fix what it reports"}}}
		}, []string{"warn conditions|example.com/Bad is True: it smokes|fix what it reports\nif a check passes when you run it but not in the service: the service has its own /tmp and /var/tmp and no devices"}},
		{"checks of one's own that are not run, or do not say", func(f *doctor.Facts) {
			f.Conditions = doctor.Conditions{
				Directory: "/etc/hostler/conditions.d", Number: 2,
				Broken:  []doctor.Fix{{Message: "/etc/hostler/conditions.d/a:4: what: unknown key", Command: "remove or correct it"}, {Message: "/etc/hostler/conditions.d/b is not executable", Command: "chmod 755 b"}},
				Unknown: []doctor.Fix{{Message: "/etc/hostler/conditions.d/c: timed out", Command: "run it manually"}},
			}
		}, []string{"warn conditions|/a:4: what: unknown key\n/|/b is not executable\n/|/c: timed out|remove or correct it\nchmod 755 b\nrun it manually\nif a check passes when you run it"}},
		{"checks of one's own that all say something", func(f *doctor.Facts) { f.Conditions = doctor.Conditions{Number: 2, Local: []string{"example.com/A"}} }, nil},
		{"a state folder that cannot be written", func(f *doctor.Facts) { f.State.Problem = "read-only" }, []string{"warn state|read-only"}},
		{"a state folder without room", func(f *doctor.Facts) { f.State.Free = 1 << 20 }, []string{"warn state|/var/lib/hostler has 1.0 MiB free|df -h /var/lib/hostler"}},
		{"a runtime that does not report where its images are", func(f *doctor.Facts) { f.Machine.ImagesUnknown = "containerd: deadline exceeded" }, []string{"warn image-filesystem|containerd: deadline exceeded|run `hostler doctor` again in some seconds"}},
		{"the same of one that is not ready", func(f *doctor.Facts) {
			f.Machine.ImagesUnknown, f.Runtimes.List[0].Ready = "containerd: deadline exceeded", false
		}, []string{"fail runtimes", "warn image-filesystem|containerd: deadline exceeded|see check runtimes"}},
		{"no filesystem of images", func(f *doctor.Facts) { f.Machine.ImageFilesystems = nil }, []string{"warn image-filesystem|no runtime has reported"}},
		{"a filesystem of images that does not answer", func(f *doctor.Facts) { f.Machine.ImageFilesystems[0].Message = "statfs: stale" }, []string{"warn image-filesystem|cannot measure /var/lib/containerd|statfs: stale|stat /var/lib/containerd"}},
		{"images above the high threshold", func(f *doctor.Facts) { f.Machine.ImageFilesystems[0].UsedPercent = 85 }, []string{"warn image-filesystem|it is 85% full, collected from 85% down to 80%|hostler gc plan"}},
		{"images whose inodes are above the high threshold", func(f *doctor.Facts) { f.Machine.ImageFilesystems[0].InodesUsedPercent = 90 }, []string{"warn image-filesystem|is 90% full"}},
		{"images above the high threshold that somebody else collects", func(f *doctor.Facts) { f.Machine.ImageFilesystems[0].UsedPercent, f.Machine.HighPercent = 85, 0 }, nil},
		{"images above the high threshold, collected on request only, beside another runtime's", func(f *doctor.Facts) {
			f.Collection.Images = &doctor.OnRequest{Runtimes: []string{"docker"}}
			f.Machine.ImageFilesystems = append(f.Machine.ImageFilesystems, gc.FilesystemStatus{Filesystem: "/var/lib/docker", Runtimes: []string{"docker"}, UsedPercent: 97})
			f.Machine.ImageFilesystems[0].UsedPercent = 85
		}, []string{"warn image-filesystem|/var/lib/containerd|it is 85% full, collected from 85% down to 80%"}},
		{"a service without a watchdog", func(f *doctor.Facts) { f.Systemd.Run.Watchdog = 0 }, []string{"warn watchdog|hostler.service has no watchdog|systemctl edit hostler, to set WatchdogSec=60 under [Service]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.spoil(&f)
			var got []string
			r := doctor.Examine(f)
			if failed := r.Checks[0].Name == "protection" && r.Checks[0].Status == doctor.Fail; r.Protected && failed {
				t.Errorf("Examine() = %+v, want it not to be protected if the check says so", r)
			}
			for _, check := range r.Checks {
				if check.Status != doctor.OK {
					got = append(got, fmt.Sprintf("%s %s: %s | %s", check.Status, check.Name, check.Message, check.Hint))
					if f.Systemd.Missing && regexp.MustCompile("systemctl|journalctl|systemd-logind|nobody, by default").MatchString(check.Message+check.Hint) {
						t.Errorf("check %+v, want a fix for a host without systemd", check)
					}
					if check.Message == "" || check.Hint == "" {
						t.Errorf("check %+v, want a message and a fix", check)
					}
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("Examine() finds\n%s\nwant %d findings: %q", strings.Join(got, "\n"), len(c.want), c.want)
			}
			for i, want := range c.want {
				parts := strings.Split(want, "|")
				if !strings.HasPrefix(got[i], parts[0]+": ") || slices.ContainsFunc(parts[1:], func(p string) bool { return !strings.Contains(got[i], p) }) {
					t.Errorf("Examine() finds %q, want %q", got[i], want)
				}
			}
		})
	}
}

// If check delay fails because the limit is too short, "ok" for the file with this limit would contradict it.
func TestTheFileOfALimitThatIsTooShortIsNotOK(t *testing.T) {
	f := healthy()
	overridden(&f)
	f.Logind.Granted = 8 * time.Second
	f.Protection = doctor.Protection{Reason: status.ReasonDelayTooShort}
	for _, c := range doctor.Examine(f).Checks {
		if c.Name == "delay-files" {
			t.Errorf("Examine() = %+v, want no verdict beside the check delay, which fails", c)
		}
	}
}

func TestWhatOnlyTheServiceDoesNotReachIsNoFaultOfTheHost(t *testing.T) {
	inside := doctor.Report{Checks: []doctor.Check{{Name: "dbus", Status: doctor.Fail, Hint: "start it", NoAccess: true}, {Name: "etcd", Status: doctor.Fail, Hint: "check etcd", NoAccess: true}, {Name: "lock", Status: doctor.Fail, Hint: "restart"}}}
	outside := doctor.Report{Checks: []doctor.Check{{Name: "dbus", Status: doctor.OK}, {Name: "etcd", Status: doctor.Fail}, {Name: "lock", Status: doctor.OK}}}
	got := inside.Compare(func() (doctor.Report, error) { return outside, nil }).Checks
	if !strings.Contains(got[0].Hint, "`systemctl cat hostler`") || got[1].Hint != "check etcd" || got[2].Hint != "restart" {
		t.Errorf("Compare() = %+v, want another fix for dbus only", got)
	}
	well := doctor.Report{Checks: []doctor.Check{{Name: "dbus", Status: doctor.OK}}}
	well.Compare(func() (doctor.Report, error) {
		t.Error("a host without faults is checked twice")
		return outside, nil
	})
	if got := inside.Compare(func() (doctor.Report, error) { return outside, errors.New("no systemd") }).Checks; got[0].Hint != "start it" {
		t.Errorf("Compare() = %+v without a second report, want the first", got)
	}
}

// A refusal is an answer: whoever runs doctor may have other rights, and no setting of the service is the
// cause.
func TestOnlyMissingAccessIsComparedWithTheHost(t *testing.T) {
	members := func(err error) func(*doctor.Facts) {
		return func(f *doctor.Facts) {
			for i := range f.Etcd.Members {
				f.Etcd.Members[i].Err = err
			}
		}
	}
	for name, c := range map[string]struct {
		spoil func(*doctor.Facts)
		check string
		want  bool
	}{
		"etcd refuses a read":            {func(f *doctor.Facts) { f.Etcd.WriteErr = clientError(controlplane.ErrForbidden) }, "etcd", false},
		"etcd refuses the user":          {members(clientError(controlplane.ErrUnavailable, controlplane.ErrUnauthorized)), "etcd", false},
		"etcd is not trusted":            {members(clientError(controlplane.ErrUnavailable, controlplane.ErrUntrusted)), "etcd", false},
		"etcd is unreachable":            {members(clientError(controlplane.ErrUnavailable)), "etcd", true},
		"a file for etcd cannot be read": {members(clientError(controlplane.ErrUnavailable, fs.ErrPermission)), "etcd", true},
		"the certificate cannot be read": {func(f *doctor.Facts) { f.Etcd.Certificate, f.Etcd.Err = nil, fs.ErrNotExist }, "etcd-credentials", true},
		"the certificate is not valid":   {func(f *doctor.Facts) { f.Etcd.Certificate, f.Etcd.Err = nil, errors.New("no PEM") }, "etcd-credentials", false},
		"the bus is unreachable":         {func(f *doctor.Facts) { f.Logind.Bus = systemd.ErrNoBus }, "dbus", true},
		"logind is not on the bus":       {func(f *doctor.Facts) { f.Logind.Login = systemd.ErrNoLogind }, "logind", false},
		"a runtime does not answer":      {func(f *doctor.Facts) { f.Runtimes.List[0].Ready = false }, "runtimes", true},
		"there is no runtime":            {func(f *doctor.Facts) { f.Runtimes.List = nil }, "runtimes", true},
		"a runtime has ended":            {func(f *doctor.Facts) { f.Runtimes.Gone = []doctor.Gone{{Name: "docker"}} }, "runtimes", false},
		"one has ended, one does not answer": {func(f *doctor.Facts) {
			f.Runtimes.List[0].Ready, f.Runtimes.Gone = false, []doctor.Gone{{Name: "docker"}}
		}, "runtimes", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := inEtcd()
			c.spoil(&f)
			checks := doctor.Examine(f).Checks
			i := slices.IndexFunc(checks, func(k doctor.Check) bool { return k.Name == c.check })
			if i < 0 || checks[i].Status == doctor.OK || checks[i].NoAccess != c.want {
				t.Errorf("Examine() = %+v, want a fault of %s with NoAccess %t", checks, c.check, c.want)
			}
		})
	}
}

func TestALockWithoutPIDNamesNoProcess(t *testing.T) {
	for pid, want := range map[uint32]string{
		0:   "hostler holds the shutdown lock that the service manager kept",
		700: "hostler holds the shutdown lock that its process 700 took and the service manager kept",
		812: "hostler holds the shutdown lock, as pid 812",
	} {
		f := healthy()
		f.Logind.Own[0].PID = pid
		checks := doctor.Examine(f).Checks
		if i := slices.IndexFunc(checks, func(c doctor.Check) bool { return c.Name == "lock" }); i < 0 || checks[i].Message != want {
			t.Errorf("Examine() of a lock of process %d = %+v, want check lock to say %q", pid, checks, want)
		}
	}
}

func TestEveryCheckIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Checks of hostler doctor\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^`([a-z-]+)` \\| ").FindAllStringSubmatch(section, -1) {
		listed = append(listed, row[1])
	}
	if want := doctor.Names(); !slices.Equal(listed, want) {
		t.Errorf("docs/reference/doctor.md lists %q, want %q", listed, want)
	}
}

// Doctor finds no fault in the order of the packaged unit, with any runtime.
func TestThePackagesUnitIsStoppedBeforeAllRuntimes(t *testing.T) {
	text, err := os.ReadFile("../../packaging/hostler.service")
	if err != nil {
		t.Fatal(err)
	}
	f := healthy()
	f.Systemd.Service.After = nil
	for line := range strings.Lines(string(text)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "After":
			f.Systemd.Service.After = append(f.Systemd.Service.After, strings.Fields(value)...)
		case "Before":
			t.Errorf("the unit has %s, want it before nothing: what it does not need would wait for its drain", line)
		}
	}
	for name, endpoint := range map[string]string{
		"containerd": "unix:///run/containerd/containerd.sock", "cri-o": "unix:///run/crio/crio.sock", "docker": "unix:///run/docker.sock",
		"podman": "unix:///run/podman/podman.sock", "cri-dockerd": "unix:///run/cri-dockerd.sock", "microk8s": "unix:///var/snap/microk8s/common/run/containerd.sock",
	} {
		f.Runtimes.List = []doctor.Runtime{{Name: name, Endpoint: endpoint, Ready: true}}
		i := slices.IndexFunc(doctor.Examine(f).Checks, func(c doctor.Check) bool { return c.Name == "unit-order" })
		if i < 0 {
			t.Fatal("there is no check unit-order")
		}
		if c := doctor.Examine(f).Checks[i]; c.Status != doctor.OK {
			t.Errorf("beside %s at %s unit-order is %s: %s", name, endpoint, c.Status, c.Message)
		}
	}
	for _, needed := range []string{"dbus.service", "systemd-logind.service", "network.target"} {
		if !slices.Contains(f.Systemd.Service.After, needed) {
			t.Errorf("the unit is not ordered after %s, which a drain needs", needed)
		}
	}
}
