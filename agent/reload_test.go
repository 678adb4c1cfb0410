package agent

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/status"
)

func seconds(n int) config.Duration { return config.Duration(time.Duration(n) * time.Second) }

func TestReloadAppliesLiveKeys(t *testing.T) {
	r := newRig(t)
	r.cfg.Status.UpdateInterval = seconds(3600)
	r.next = r.cfg
	a := r.build(t)
	heartbeats := make(chan error, 2)
	go func() { _ = a.reports.reporter.Run(t.Context(), func(err error) { heartbeats <- err }) }()
	<-heartbeats
	r.next.ImageGC.HighThresholdPercent, r.next.ImageGC.LowThresholdPercent = 70, 60
	r.next.ImageGC.Interval, r.next.ContainerGC.Interval = seconds(90), seconds(45)
	r.next.ImageGC.Keep = []string{"registry.example.net/*"}
	r.next.ContainerGC.MaxContainers = 7
	r.next.Pressure.MemoryAvailable = "1Gi"
	r.next.Pressure.PSI.Memory = config.Stall{Kind: "full", Window: seconds(60), Threshold: "20%"}
	r.next.Node.MaxPods, r.next.Status.MaxImages = 11, 3
	r.next.Conditions.Directory = t.TempDir()
	r.next.Log.Level = "debug"
	_, _ = a.serving.reloader.Reload(t.Context())
	if got := a.host.checks.Folder(); got != r.next.Conditions.Directory {
		t.Errorf("checks lie in %s, want the new folder", got)
	}
	r.manager.expects(t, "RELOADING=1")
	r.manager.expects(t, "READY=1")
	if !reflect.DeepEqual(a.config(), r.next) {
		t.Errorf("config() = %+v, want %+v", a.config(), r.next)
	}
	p := gc.Policy{Images: a.gc.images.Policy(), Containers: a.gc.dead.Policy()}
	if p.Images.HighPercent != 70 || p.Images.LowPercent != 60 || p.Containers.MaxContainers != 7 {
		t.Errorf("the collectors' policy = %+v, want the new one", p)
	}
	o := a.settings.Node()
	if o.Name != nodeName || o.MaxPods != 11 || o.MaxImages != 3 || o.Pressure.MemoryAvailable.String() != "1Gi" || !slices.Equal(o.Pressure.Stalls(), []string{"memory"}) {
		t.Errorf("the node's options = %+v, want the new ones, and the name of before", o)
	}
	if stalls := a.host.facts.Measure(t.Context(), nil).Stalls; len(stalls) != 1 || stalls[0].Resource != "memory" {
		t.Errorf("the facts have stalls %+v, want those of memory", stalls)
	}
	if r.level.Level() != slog.LevelDebug {
		t.Errorf("the log's level = %v, want debug", r.level.Level())
	}
	select {
	case <-heartbeats:
	case <-time.After(bound):
		t.Error("the reporter was not notified")
	}
	for _, key := range []string{"imageGC.highThresholdPercent", "imageGC.keep", "log.level", "pressure.memoryAvailable", "pressure.psi.memory.threshold"} {
		if !strings.Contains(r.log.String(), key) {
			t.Errorf("log = %s, want %s named", &r.log, key)
		}
	}
}

func TestReloadRejectsOtherKeysByName(t *testing.T) {
	for key, change := range map[string]func(*config.Config){
		"node.name":             func(c *config.Config) { c.Node.Name = "other" },
		"node.enabled":          func(c *config.Config) { c.Node.Enabled = config.Off },
		"node.labels":           func(c *config.Config) { c.Node.Labels = map[string]string{"a": "b"} },
		"node.taints":           func(c *config.Config) { c.Node.Taints = []config.Taint{{Key: "a", Effect: "NoSchedule"}} },
		"node.takeover":         func(c *config.Config) { c.Node.Takeover = true },
		"runtimes":              func(c *config.Config) { c.Runtimes = config.Runtimes{Auto: true} },
		"lease.duration":        func(c *config.Config) { c.Lease.Duration = seconds(60) },
		"status.updateInterval": func(c *config.Config) { c.Status.UpdateInterval = seconds(20) },
		"shutdown.gracePeriod":  func(c *config.Config) { c.Shutdown.GracePeriod = seconds(60) },
		"shutdown.critical":     func(c *config.Config) { c.Shutdown.Critical = []config.CriticalRule{{Name: "db"}} },
		"imageGC.enabled":       func(c *config.Config) { c.ImageGC.Enabled = config.Off },
		"state.directory":       func(c *config.Config) { c.State.Directory = "/elsewhere" },
		"api.socket":            func(c *config.Config) { c.API.Socket = "/elsewhere" },
		"metrics.listen":        func(c *config.Config) { c.Metrics.Listen = "127.0.0.1:1" },
		"log.format":            func(c *config.Config) { c.Log.Format = "json" },
		"controlPlane.type":     func(c *config.Config) { c.ControlPlane.Type = "etcd" },
		"shutdown.byPriority": func(c *config.Config) {
			c.Shutdown.ByPriority = []config.PriorityGrace{{Priority: 1, GracePeriod: seconds(1)}}
		},
		"node.unschedulable":               func(c *config.Config) { c.Node.Unschedulable = true },
		"lease.renewInterval":              func(c *config.Config) { c.Lease.RenewInterval = seconds(5) },
		"status.reportInterval":            func(c *config.Config) { c.Status.ReportInterval = seconds(5) },
		"containerGC.enabled":              func(c *config.Config) { c.ContainerGC.Enabled = config.Off },
		"node.annotations":                 func(c *config.Config) { c.Node.Annotations = map[string]string{"a": "b"} },
		"lease.enabled":                    func(c *config.Config) { c.Lease.Enabled = config.Off },
		"shutdown.enabled":                 func(c *config.Config) { c.Shutdown.Enabled = config.Auto },
		"shutdown.gracePeriodCriticalPods": func(c *config.Config) { c.Shutdown.GracePeriodCriticalPods = seconds(3) },
	} {
		t.Run(key, func(t *testing.T) {
			r := newRig(t)
			a := r.build(t)
			r.next.ImageGC.HighThresholdPercent = 99 // this key alone could be reloaded
			change(&r.next)
			_, changed, _, err := a.serving.reloader.applyFiles()
			if err == nil || !strings.HasPrefix(err.Error(), key+" cannot change while the agent runs; restart it with `systemctl restart hostler`") {
				t.Errorf("applyFiles() = %v, %v, want %s refused with a hint", changed, err, key)
			}
			if !reflect.DeepEqual(a.config(), r.cfg) || a.gc.images.Policy().HighPercent != 85 {
				t.Errorf("config() = %+v, want all of it as before", a.config())
			}
		})
	}
}

func TestReloadReportsEachOfSeveralFaultsOnALineOfItsOwn(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	r.nextErr = errors.New("a.yaml:1: no")
	if _, err := a.serving.reloader.Reload(t.Context()); err == nil || err.Error() != "reload rejected, keeping the old configuration: a.yaml:1: no" {
		t.Errorf("Reload() = %v, want one line", err)
	}
	r.nextErr = errors.New("a.yaml:1: no\na.yaml:2: no")
	if _, err := a.serving.reloader.Reload(t.Context()); err == nil || err.Error() != "reload rejected, keeping the old configuration:\na.yaml:1: no\na.yaml:2: no" {
		t.Errorf("Reload() = %v, want three lines", err)
	}
}

func TestReloadOfAFaultyConfigurationChangesNothing(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	r.next.ImageGC.HighThresholdPercent = 99
	r.nextErr = errors.New("hostler.yaml:3: imageGC.highThresholdPercent: much is not a whole number")
	_, _ = a.serving.reloader.Reload(t.Context())
	r.manager.expects(t, "RELOADING=1")
	r.manager.expects(t, "READY=1") // otherwise systemd waits for it
	if !reflect.DeepEqual(a.config(), r.cfg) || a.gc.images.Policy().HighPercent != 85 {
		t.Errorf("config() = %+v, want the old one", a.config())
	}
	if r.log.Count("reload rejected: keeping the old configuration") != 1 || r.log.Count("hostler.yaml:3") != 1 {
		t.Errorf("log = %s, want the fault, once", &r.log)
	}
}

// An address that no interface has may be mistyped, or a virtual address that another host has now.
func TestReloadWarnsOfAnAddressThatTheHostDoesNotHave(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	r.next.Node.Address = config.Address{Internal: []string{"192.0.2.71"}, External: []string{"203.0.113.7"}}
	report, err := a.serving.reloader.Reload(t.Context())
	const want = "node.address.internal: no interface has an address for 192.0.2.71\nhint: compare it with `ip address`"
	if err != nil || len(report.Warnings) != 1 || !strings.HasPrefix(report.Warnings[0], want) {
		t.Errorf("Reload() = %+v, %v, want the warning %q", report, err, want)
	}
	if got := a.settings.Node().Addresses.Internal; !slices.Equal(got, []string{"192.0.2.71"}) {
		t.Errorf("Reload() put addresses %v into effect, want the new one", got)
	}
}

// Values that depend on the host are also rejected as a whole.
func TestReloadOfWhatTheHostCannotGive(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	r.next.Node.Reserved.CPU = "1000000"
	r.next.Node.MaxPods = 11
	if _, changed, _, err := a.serving.reloader.applyFiles(); err == nil || !strings.Contains(err.Error(), "node.reserved.cpu") {
		t.Errorf("applyFiles() = %v, %v, want node.reserved.cpu refused", changed, err)
	}
	if a.config().Node.MaxPods != 110 || a.settings.Node().MaxPods != 110 {
		t.Errorf("config() = %+v, want the old one", a.config().Node)
	}
}

// A rejected configuration must not be effective in part.
func TestARejectedConfigurationHasNoEffect(t *testing.T) {
	r := newRig(t)
	reloader := r.build(t).serving.reloader
	asked, applied := 0, 0
	apply := func(config.Config, open.Policies) { applied++ }
	fits := func(status.Options) error { asked++; return errors.New("too much") }
	reloader.effects = []effect{{apply: apply}, {keys: "node.maxPods", apply: apply}, {keys: "pressure", fits: fits, apply: apply}}
	r.next.Node.MaxPods = 11
	if _, _, _, err := reloader.applyFiles(); err != nil || asked != 0 || applied != 3 {
		t.Errorf("applyFiles() = %v, asked %d times and applied %d effects, want all of them, and nobody asked", err, asked, applied)
	}
	before := reloader.settings.Config()
	r.next.Node.MaxPods, r.next.Pressure.MemoryAvailable = 12, "200Mi"
	if _, _, _, err := reloader.applyFiles(); err == nil || asked != 1 || applied != 3 || !reflect.DeepEqual(reloader.settings.Config(), before) {
		t.Errorf("applyFiles() = %v, asked %d times and applied %d effects, want it refused and none", err, asked, applied-3)
	}
}

// A host that has shrunk below its reservation keeps running and reports that. Unrelated keys can
// still be reloaded.
func TestAHostThatHasShrunkIsReportedAndGoesOn(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	if err := a.reports.reporter.ReportShutdown(t.Context(), a.shutdown.guard.Status()); err != nil {
		t.Fatal(err)
	}
	if s, err := a.serving.backend.Status(t.Context()); err != nil || s.Shortage != "" {
		t.Errorf("Status() = %q, %v, want nothing amiss", s.Shortage, err)
	}
	policies, cfg := a.settings.Policies(), a.config()
	policies.Node.Reserved.CPU = resource.MustParse("1000000") // as if the host had had more
	policies.Node.Reserved.Memory = resource.MustParse("1Pi")
	a.settings.Set(cfg, policies)
	s, err := a.serving.backend.Status(t.Context())
	if err != nil || !strings.Contains(s.Shortage, "node.reserved.cpu: 1M reserved, of") || !strings.Contains(s.Shortage, "; node.reserved.memory: 1Pi reserved, ") {
		t.Errorf("Status() = %q, %v, want both reported", s.Shortage, err)
	}
	cfg.Node.Reserved.CPU, r.next.Node.Reserved.CPU = "1M", "1M"
	a.settings.Set(cfg, policies)
	r.next.Log.Level = "debug"
	if _, changed, _, err := a.serving.reloader.applyFiles(); err != nil || !slices.Equal(changed, []string{"log.level"}) {
		t.Errorf("applyFiles() = %v, %v, want log.level taken up", changed, err)
	}
	r.next.Pressure.MemoryAvailable = "200Mi"
	if _, changed, _, err := a.serving.reloader.applyFiles(); err == nil || !strings.Contains(err.Error(), "node.reserved.cpu") {
		t.Errorf("applyFiles() = %v, %v, want what is reserved judged again with its thresholds", changed, err)
	}
}

// Users must learn of a rejected reload before the host shuts down.
func TestFilesThatAreNotInForceAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*rig)
		reload bool
		want   doctor.Configuration
		metric string
	}{
		"nothing has changed":                   {change: func(*rig) {}, reload: true, metric: "1"},
		"a change that nobody had taken up":     {func(r *rig) { r.next.Log.Level = "debug" }, false, doctor.Configuration{Differs: []string{"log.level"}}, "1"},
		"a change that was taken up":            {change: func(r *rig) { r.next.Log.Level = "debug" }, reload: true, metric: "1"},
		"a change that only a restart takes up": {func(r *rig) { r.next.Log.Level, r.next.Node.Name = "debug", "b" }, true, doctor.Configuration{Differs: []string{"node.name", "log.level"}, Restart: true}, "0"},
		"what the host cannot give":             {func(r *rig) { r.next.Node.Reserved.CPU = "1M" }, true, doctor.Configuration{Differs: []string{"node.reserved.cpu"}, Refused: "node.reserved.cpu"}, "0"},
		"a fault":                               {func(r *rig) { r.nextErr = errors.New("a.yaml:3: no") }, true, doctor.Configuration{Fault: "a.yaml:3: no"}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			a := r.build(t)
			c.change(r)
			if c.reload {
				if _, err := a.serving.reloader.Reload(t.Context()); (err != nil) != (c.metric == "0") {
					t.Errorf("Reload() = %v, want it refused: %v", err, c.metric == "0")
				}
			}
			s, err := a.serving.backend.Status(t.Context())
			got := s.Configuration
			got.Origin = nil
			if strings.Contains(got.Refused, "node.reserved.cpu") {
				got.Refused = "node.reserved.cpu"
			}
			if err != nil || !reflect.DeepEqual(got, c.want) && (got.Trouble() != "" || c.want.Trouble() != "") {
				t.Errorf("Status() = %+v, %v, want %+v", got, err, c.want)
			}
			shown, err := a.serving.backend.Config(t.Context())
			if inForce, _ := a.config().YAML(); err != nil || shown.YAML != string(inForce) || shown.Trouble() != s.Configuration.Trouble() {
				t.Errorf("Config() = %+v, %v, want the effective configuration", shown, err)
			}
			w := httptest.NewRecorder()
			a.serving.metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
			if want := "hostler_config_last_reload_successful " + c.metric; !strings.Contains(w.Body.String(), want) {
				t.Errorf("GET /metrics has no %s", want)
			}
		})
	}
}

// A rejection is no longer reported when the files change.
func TestARefusalIsForgottenWithTheFilesThatCausedIt(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	r.next.Node.Reserved.CPU = "1M"
	if _, err := a.serving.reloader.Reload(t.Context()); err == nil {
		t.Error("Reload() = nil, want it refused")
	}
	r.next.Node.Reserved.CPU = ""
	r.next.Node.MaxPods = 11
	if c := a.settings.Compare(); c.Refused != "" || !slices.Equal(c.Differs, []string{"node.maxPods"}) {
		t.Errorf("configuration() = %+v, want node.maxPods alone", c)
	}
}

func TestAnAgentThatEndsReloadsNoMore(t *testing.T) {
	a := newRig(t).build(t)
	a.shutdown.ending.Store(true)
	if _, err := a.serving.reloader.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "the agent is stopping") {
		t.Errorf("Reload() = %v, want it refused", err)
	}
}

func TestReloadWithoutAChange(t *testing.T) {
	r := newRig(t)
	a := r.build(t)
	_, _ = a.serving.reloader.Reload(t.Context())
	if r.log.Count("reloaded: nothing changed") != 1 || r.log.Count("level=ERROR") != 0 {
		t.Errorf("log = %s, want nothing to have changed", &r.log)
	}
}

// If a live key had no effect, a reload would report a change that is not effective.
func TestEachLiveKeyTakesEffect(t *testing.T) {
	a := newRig(t).build(t)
	keys, err := config.Keys()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, key := range keys {
		if !config.Live(key.Path) {
			continue
		}
		var found []string
		for _, e := range a.serving.reloader.effects {
			if e.keys != "" && below(key.Path, e.keys) {
				found = append(found, e.keys)
				used[e.keys] = true
			}
		}
		if len(found) != 1 {
			t.Errorf("live key %s takes effect by %q, want one row of effects", key.Path, found)
		}
	}
	for _, e := range a.serving.reloader.effects {
		if e.keys != "" && !used[e.keys] {
			t.Errorf("effects has a row of %q, below which no key is live", e.keys)
		}
	}
}
