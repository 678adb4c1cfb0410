// Package metrics counts events in the agent, and serves the counters and the current state in the
// format of Prometheus. It owns names, labels and the endpoint. The agent does not read metrics: no
// decision depends on one.
package metrics

import (
	"net/http"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/reboots"
)

// Metrics has a field for each counter. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	renewals     *prometheus.CounterVec
	writes       *prometheus.CounterVec
	transitions  *prometheus.CounterVec
	checks       *prometheus.CounterVec
	checkTime    *prometheus.HistogramVec
	runs         *prometheus.CounterVec
	runDuration  *prometheus.HistogramVec
	requested    prometheus.Counter
	estimated    prometheus.Counter
	freed        prometheus.Counter
	reqInodes    prometheus.Counter
	freedInodes  prometheus.Counter
	images       *prometheus.CounterVec
	containers   *prometheus.CounterVec
	pods         *prometheus.CounterVec
	logs         *prometheus.CounterVec
	removalError *prometheus.CounterVec
	calls        *prometheus.HistogramVec
	callErrors   *prometheus.CounterVec
}

// State is the current state of the agent.
type State struct {
	Version       string
	LeaseRenewed  time.Time // last renewal, or the first attempt if there was none; zero if hostler does not renew
	Loops         []loop.Health
	Shutdown      shutdown.Status
	Protected     bool            // whether a shutdown would wait for the pods
	Runtimes      map[string]bool // readiness by name
	EventsDropped uint64
	ReloadRefused bool // the last reload was rejected
	CgroupVersion int  // 0 without cgroups
	Reboots       reboots.Counts
	Images        *runs.Report // last collection of images; nil before the first
	Conditions    []corev1.NodeCondition
	RebootStep    controlplane.RebootStep // empty if the host does not reboot in turn
}

// New returns metrics with all counters at zero.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.renewals = counters("hostler_lease_renewals_total", "Attempts to renew the lease, by result.", "result")
	m.writes = counters("hostler_status_writes_total", "Attempts to write the node's status, by result.", "result")
	m.transitions = counters("hostler_condition_transitions_total", "Changes of condition status, by new status.", "condition", "status")
	m.checks = counters("hostler_condition_checks_total", "Runs of custom condition checks, by result.", "condition", "result")
	m.checkTime = histograms("hostler_condition_check_duration_seconds", "Duration of custom condition checks.", prometheus.ExponentialBuckets(0.001, 4, 8), "condition")
	m.runs = counters("hostler_gc_runs_total", "Collections, by kind and result.", "kind", "result")
	m.runDuration = histograms("hostler_gc_run_duration_seconds", "Duration of collections, by kind.", prometheus.ExponentialBuckets(0.01, 4, 8), "kind")
	m.requested = counters("hostler_gc_requested_bytes_total", "Bytes that image collections were requested to free.").WithLabelValues()
	m.estimated = counters("hostler_gc_estimated_bytes_total", "Size of removed images as reported by their runtime; compare with the bytes freed.").WithLabelValues()
	m.reqInodes = counters("hostler_gc_requested_inodes_total", "Inodes that image collections were requested to free.").WithLabelValues()
	m.freedInodes = counters("hostler_gc_freed_inodes_total", "Inodes that collections of images and containers freed, as measured on the filesystem.").WithLabelValues()
	m.freed = counters("hostler_gc_freed_bytes_total", "Bytes that collections of images and containers freed, as measured on the filesystem.").WithLabelValues()
	m.images = counters("hostler_gc_images_removed_total", "Images removed, by reason.", "reason")
	m.containers = counters("hostler_gc_containers_removed_total", "Dead containers removed, by reason.", "reason")
	m.pods = counters("hostler_gc_pods_removed_total", "Sandboxes of dead pods removed, by reason.", "reason")
	m.logs = counters("hostler_gc_logs_removed_total", "Removed log directories of deleted pods and dangling log links, by reason.", "reason")
	m.removalError = counters("hostler_gc_errors_total", "Errors in collections, by kind.", "kind")
	m.calls = histograms("hostler_runtime_call_duration_seconds", "Duration of calls to container runtimes.", prometheus.ExponentialBuckets(0.001, 4, 8), "runtime", "method")
	m.callErrors = counters("hostler_runtime_call_errors_total", "Calls to container runtimes that failed.", "runtime", "method")

	m.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
	)
	return m
}

func result(err error) string {
	if err != nil {
		return "failure"
	}
	return "success"
}

// Renewal counts an attempt to renew the Lease.
func (m *Metrics) Renewal(err error) { m.renewals.WithLabelValues(result(err)).Inc() }

// StatusWrite counts an attempt to write the Node's status.
func (m *Metrics) StatusWrite(err error) { m.writes.WithLabelValues(result(err)).Inc() }

// Transition counts the change of a condition to c.
func (m *Metrics) Transition(c corev1.NodeCondition) {
	m.transitions.WithLabelValues(string(c.Type), string(c.Status)).Inc()
}

// Check counts a run of a custom check.
func (m *Metrics) Check(condition corev1.NodeConditionType, answer status.Answer, took time.Duration) {
	m.checks.WithLabelValues(string(condition), answer.String()).Inc()
	m.checkTime.WithLabelValues(string(condition)).Observe(took.Seconds())
}

// RuntimeCall counts a call to a container runtime.
func (m *Metrics) RuntimeCall(runtime, method string, took time.Duration, err error) {
	m.calls.WithLabelValues(runtime, method).Observe(took.Seconds())
	if err != nil {
		m.callErrors.WithLabelValues(runtime, method).Inc()
	}
}

// Collection counts a run of the collector whose loop has this name.
func (m *Metrics) Collection(kind string, r runs.Report) {
	outcome := "success"
	if len(r.Errors) > 0 {
		outcome = "failure"
	}
	m.runs.WithLabelValues(kind, outcome).Inc()
	m.runDuration.WithLabelValues(kind).Observe(r.Duration.Seconds())
	m.removalError.WithLabelValues(kind).Add(float64(len(r.Errors)))
	m.requested.Add(float64(r.RequestedBytes))
	m.estimated.Add(float64(r.EstimatedBytes))
	m.freed.Add(float64(r.FreedBytes))
	m.reqInodes.Add(float64(r.RequestedInodes))
	m.freedInodes.Add(float64(r.FreedInodes))
	removed := map[string]*prometheus.CounterVec{
		runs.KindImage: m.images, runs.KindContainer: m.containers, runs.KindPod: m.pods, runs.KindLog: m.logs,
	}
	for _, one := range r.Removed {
		if counter := removed[one.Kind]; counter != nil {
			counter.WithLabelValues(string(one.Reason)).Inc()
		}
	}
}

// Handler serves the metrics, and calls ask with each request for the current state. It does not
// compress: a compressor needs 1.4 MB to save some kilobytes on the loopback interface.
func (m *Metrics) Handler(ask func() State) http.Handler {
	asked := prometheus.NewRegistry()
	asked.MustRegister(collector{ask})
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, asked}, promhttp.HandlerOpts{Timeout: 5 * time.Second, DisableCompression: true})
}

// collector provides the metrics that are read at each request.
type collector struct{ ask func() State }

var (
	descBuildInfo     = prometheus.NewDesc("hostler_build_info", "Always 1; the labels identify the build.", []string{"version", "goversion"}, nil)
	descLeaseAge      = prometheus.NewDesc("hostler_lease_age_seconds", "Time since the last lease renewal, or since the first attempt if it was never renewed.", nil, nil)
	descLoopHealthy   = prometheus.NewDesc("hostler_loop_healthy", "Whether the last run of a loop succeeded and the loop makes progress.", []string{"loop"}, nil)
	descLoopRestarts  = prometheus.NewDesc("hostler_loop_restarts_total", "Restarts of a loop.", []string{"loop"}, nil)
	descShutdownState = prometheus.NewDesc("hostler_shutdown_state", "1 for the current state of the shutdown guard.", []string{"state"}, nil)
	descProtected     = prometheus.NewDesc("hostler_shutdown_protected", "Whether a shutdown would wait for the pods to stop, as in condition hostler.io/ShutdownProtected.", nil, nil)
	descGranted       = prometheus.NewDesc("hostler_shutdown_delay_granted_seconds", "The longest shutdown delay that logind grants; absent if unknown.", nil, nil)
	descNeeded        = prometheus.NewDesc("hostler_shutdown_delay_needed_seconds", "The full length of the shutdown phases; 0 if switched off.", nil, nil)
	descShutdownTime  = prometheus.NewDesc("hostler_shutdown_last_duration_seconds", "Duration of the drain in the last shutdown.", nil, nil)
	descShutdownGood  = prometheus.NewDesc("hostler_shutdown_last_graceful", "Whether the last shutdown left no pod running. A pod that was killed at the end of its grace period does not count.", nil, nil)
	descRuntimeReady  = prometheus.NewDesc("hostler_runtime_ready", "Whether a container runtime is ready.", []string{"runtime"}, nil)
	descCandidates    = prometheus.NewDesc("hostler_gc_candidates", "Unprotected images at the start of the last image collection.", nil, nil)
	descOldest        = prometheus.NewDesc("hostler_gc_oldest_candidate_age_seconds", "How long the next image to be removed has been unused; absent if there is none.", nil, nil)
	descKept          = prometheus.NewDesc("hostler_gc_images_kept", "Images kept by the last image collection, by reason.", []string{"reason"}, nil)
	descReload        = prometheus.NewDesc("hostler_config_last_reload_successful", "0 if the last reload was rejected, so that the files may differ from the effective configuration.", nil, nil)
	descCgroup        = prometheus.NewDesc("hostler_cgroup_version", "The cgroup version: 2, or 1 for legacy and hybrid; absent if there is none.", nil, nil)
	descReboots       = prometheus.NewDesc("hostler_reboots_total", "Reboots seen by this agent or earlier ones, by whether they were expected: true, false or unknown.", []string{"expected"}, nil)
	descCondition     = prometheus.NewDesc("hostler_condition", "1 for the status that a condition of the Node has, as this host sees it.", []string{"type", "status"}, nil)
	descRebootStep    = prometheus.NewDesc("hostler_reboot_step", "1 for the step of this host's reboot in turn; absent without reboot.enabled.", []string{"step"}, nil)
	descEventsDropped = prometheus.NewDesc("hostler_events_dropped_total", "Events dropped because too many were queued.", nil, nil)
)

// Describe lists the metrics of Collect.
func (s collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descBuildInfo, descLeaseAge, descLoopHealthy, descLoopRestarts, descShutdownState,
		descProtected, descGranted, descNeeded,
		descShutdownTime, descShutdownGood, descRuntimeReady, descEventsDropped,
		descCandidates, descOldest, descKept, descReload, descCgroup, descReboots,
		descCondition, descRebootStep,
	} {
		out <- d
	}
}

// Collect returns the current state as metrics.
func (s collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	now := s.ask()
	gauge(descBuildInfo, 1, now.Version, goruntime.Version())
	if !now.LeaseRenewed.IsZero() {
		gauge(descLeaseAge, time.Since(now.LeaseRenewed).Seconds())
	}
	for _, l := range now.Loops {
		gauge(descLoopHealthy, boolValue(l.Healthy), l.Name)
		counter(descLoopRestarts, float64(l.Restarts), l.Name)
	}
	for state := shutdown.Disarmed; state <= shutdown.Delegated; state++ {
		gauge(descShutdownState, boolValue(state == now.Shutdown.State), state.String())
	}
	gauge(descProtected, boolValue(now.Protected))
	if now.Shutdown.InhibitDelayMax.Duration > 0 || now.Shutdown.InhibitDelayShortage != "" {
		gauge(descGranted, now.Shutdown.InhibitDelayMax.Seconds())
	}
	gauge(descNeeded, now.Shutdown.InhibitDelayNeeded.Seconds())
	if last := now.Shutdown.Last; last != nil {
		gauge(descShutdownGood, boolValue(last.Graceful))
		if !last.FinishedAt.IsZero() {
			gauge(descShutdownTime, last.FinishedAt.Sub(last.StartedAt).Seconds())
		}
	}
	for name, ready := range now.Runtimes {
		gauge(descRuntimeReady, boolValue(ready), name)
	}
	gauge(descReload, boolValue(!now.ReloadRefused))
	if now.CgroupVersion > 0 {
		gauge(descCgroup, float64(now.CgroupVersion))
	}
	s.conditions(now.Conditions, gauge)
	if now.RebootStep != "" {
		for _, step := range controlplane.RebootSteps() {
			gauge(descRebootStep, boolValue(step == now.RebootStep), string(step))
		}
	}
	counter(descEventsDropped, float64(now.EventsDropped))
	counter(descReboots, float64(now.Reboots.Expected), "true")
	counter(descReboots, float64(now.Reboots.Unexpected), "false")
	counter(descReboots, float64(now.Reboots.Unknown), "unknown")
	if last := now.Images; last != nil {
		gauge(descCandidates, float64(last.Candidates))
		if !last.OldestCandidate.IsZero() {
			gauge(descOldest, max(0, time.Since(last.OldestCandidate).Seconds()))
		}
		for reason, n := range last.Kept {
			gauge(descKept, float64(n), string(reason))
		}
	}
}

// maxConditions is the maximum number of condition types in a response. Each custom check adds one.
const maxConditions = 64

// conditions reports the status of each condition type.
func (s collector) conditions(all []corev1.NodeCondition, gauge func(*prometheus.Desc, float64, ...string)) {
	seen := map[string]bool{} // a metric that is sent twice fails the response
	for _, c := range all {
		kind := strings.ToValidUTF8(string(c.Type), "�")
		if seen[kind] || len(seen) == maxConditions {
			continue
		}
		seen[kind] = true
		for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
			gauge(descCondition, boolValue(c.Status == status), kind, string(status))
		}
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
