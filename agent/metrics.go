package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	goruntime "runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
)

// metrics counts what happens and reads off, when asked, how things stand.
type metrics struct {
	registry *prometheus.Registry

	renewals     *prometheus.CounterVec
	writes       *prometheus.CounterVec
	transitions  *prometheus.CounterVec
	runs         *prometheus.CounterVec
	runDuration  *prometheus.HistogramVec
	requested    prometheus.Counter
	freed        prometheus.Counter
	images       *prometheus.CounterVec
	containers   *prometheus.CounterVec
	pods         *prometheus.CounterVec
	logs         *prometheus.CounterVec
	removalError *prometheus.CounterVec
	calls        *prometheus.HistogramVec
	callErrors   *prometheus.CounterVec
}

func newMetrics(a *Agent) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
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
	m.transitions = counters("hostler_condition_transitions_total", "Changes of a condition's status, by the status that it changed to.", "condition", "status")
	m.runs = counters("hostler_gc_runs_total", "Collections, by kind and result.", "kind", "result")
	m.runDuration = histograms("hostler_gc_run_duration_seconds", "How long collections took, by kind.", prometheus.ExponentialBuckets(0.01, 4, 8), "kind")
	m.requested = counters("hostler_gc_requested_bytes_total", "Bytes that image collections were asked to free.").WithLabelValues()
	m.freed = counters("hostler_gc_freed_bytes_total", "Bytes that collections of images and containers freed, as measured on the filesystem.").WithLabelValues()
	m.images = counters("hostler_gc_images_removed_total", "Images removed, by reason.", "reason")
	m.containers = counters("hostler_gc_containers_removed_total", "Dead containers removed, by reason.", "reason")
	m.pods = counters("hostler_gc_pods_removed_total", "Sandboxes of dead pods removed, by reason.", "reason")
	m.logs = counters("hostler_gc_logs_removed_total", "Log folders of pods that are gone and links to logs that are not there removed, by reason.", "reason")
	m.removalError = counters("hostler_gc_errors_total", "Errors in collections, by kind.", "kind")
	m.calls = histograms("hostler_runtime_call_duration_seconds", "How long calls to container runtimes took.", prometheus.ExponentialBuckets(0.001, 4, 8), "runtime", "method")
	m.callErrors = counters("hostler_runtime_call_errors_total", "Calls to container runtimes that failed.", "runtime", "method")

	m.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		standing{a},
	)
	return m
}

func result(err error) string {
	if err != nil {
		return "failure"
	}
	return "success"
}

func (m *metrics) renewal(err error)     { m.renewals.WithLabelValues(result(err)).Inc() }
func (m *metrics) statusWrite(err error) { m.writes.WithLabelValues(result(err)).Inc() }

func (m *metrics) transition(c corev1.NodeCondition) {
	m.transitions.WithLabelValues(string(c.Type), string(c.Status)).Inc()
}

func (m *metrics) runtimeCall(runtime, method string, took time.Duration, err error) {
	m.calls.WithLabelValues(runtime, method).Observe(took.Seconds())
	if err != nil {
		m.callErrors.WithLabelValues(runtime, method).Inc()
	}
}

// collection counts one run of a collector, named as its loop.
func (m *metrics) collection(kind string, r collect.Report) {
	outcome := "success"
	if len(r.Errors) > 0 {
		outcome = "failure"
	}
	m.runs.WithLabelValues(kind, outcome).Inc()
	m.runDuration.WithLabelValues(kind).Observe(r.Duration.Seconds())
	m.removalError.WithLabelValues(kind).Add(float64(len(r.Errors)))
	m.requested.Add(float64(r.RequestedBytes))
	m.freed.Add(float64(r.FreedBytes))
	removed := map[string]*prometheus.CounterVec{
		collect.KindImage: m.images, collect.KindContainer: m.containers, collect.KindPod: m.pods, collect.KindLog: m.logs,
	}
	for _, one := range r.Removed {
		if counter := removed[one.Kind]; counter != nil {
			counter.WithLabelValues(string(one.Reason)).Inc()
		}
	}
}

// handler serves the metrics, uncompressed: a compressor takes 1.4 MB to save
// some kilobytes on the loopback interface.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Timeout: 5 * time.Second, DisableCompression: true})
}

// standing collects what is read off when asked.
type standing struct{ a *Agent }

var (
	descBuildInfo     = prometheus.NewDesc("hostler_build_info", "Always 1; the labels tell the build.", []string{"version", "goversion"}, nil)
	descLeaseAge      = prometheus.NewDesc("hostler_lease_age_seconds", "Time since the lease was last renewed.", nil, nil)
	descLoopHealthy   = prometheus.NewDesc("hostler_loop_healthy", "Whether a loop's last round succeeded and it makes progress.", []string{"loop"}, nil)
	descLoopRestarts  = prometheus.NewDesc("hostler_loop_restarts_total", "How often a loop had to be started again.", []string{"loop"}, nil)
	descShutdownState = prometheus.NewDesc("hostler_shutdown_state", "1 for the state that the shutdown guard is in.", []string{"state"}, nil)
	descProtected     = prometheus.NewDesc("hostler_shutdown_protected", "Whether a shutdown would wait until the pods have stopped, for as long as they are to have; as condition hostler.io/ShutdownProtected.", nil, nil)
	descGranted       = prometheus.NewDesc("hostler_shutdown_delay_granted_seconds", "The longest delay that logind grants to a shutdown; none where it is not known.", nil, nil)
	descNeeded        = prometheus.NewDesc("hostler_shutdown_delay_needed_seconds", "The delay that the shutdown's phases take in full; 0 where they are switched off.", nil, nil)
	descShutdownTime  = prometheus.NewDesc("hostler_shutdown_last_duration_seconds", "How long the last shutdown's drain took.", nil, nil)
	descShutdownGood  = prometheus.NewDesc("hostler_shutdown_last_graceful", "Whether the last shutdown was graceful.", nil, nil)
	descRuntimeReady  = prometheus.NewDesc("hostler_runtime_ready", "Whether a container runtime is ready.", []string{"runtime"}, nil)
	descEventsDropped = prometheus.NewDesc("hostler_events_dropped_total", "Events given up because too many waited.", nil, nil)
)

// Describe lists what Collect collects.
func (s standing) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descBuildInfo, descLeaseAge, descLoopHealthy, descLoopRestarts, descShutdownState,
		descProtected, descGranted, descNeeded,
		descShutdownTime, descShutdownGood, descRuntimeReady, descEventsDropped,
	} {
		out <- d
	}
}

// Collect reads how things stand.
func (s standing) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	now := time.Now()
	gauge(descBuildInfo, 1, s.a.options.Version, goruntime.Version())
	if stats := s.a.keeper.Stats(); !stats.LastRenewed.IsZero() {
		gauge(descLeaseAge, now.Sub(stats.LastRenewed).Seconds())
	}
	for _, l := range s.a.loops {
		loop := l.snapshot(now)
		gauge(descLoopHealthy, truth(loop.Healthy), loop.Name)
		counter(descLoopRestarts, float64(loop.Restarts), loop.Name)
	}
	guard := s.a.guard.Status()
	for state := shutdown.Disarmed; state <= shutdown.Delegated; state++ {
		gauge(descShutdownState, truth(state == guard.State), state.String())
	}
	protected, _, _ := status.Protected(s.a.protectionFacts(guard))
	gauge(descProtected, truth(protected))
	if guard.InhibitDelayMax.Duration > 0 {
		gauge(descGranted, guard.InhibitDelayMax.Seconds())
	}
	gauge(descNeeded, guard.InhibitDelayNeeded.Seconds())
	if last := guard.Last; last != nil {
		gauge(descShutdownGood, truth(last.Graceful))
		if !last.FinishedAt.IsZero() {
			gauge(descShutdownTime, last.FinishedAt.Sub(last.StartedAt).Seconds())
		}
	}
	for _, r := range s.a.runtimes.report() {
		gauge(descRuntimeReady, truth(r.Ready), r.Name)
	}
	counter(descEventsDropped, float64(s.a.recorder.Stats().Dropped))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// serveMetrics serves them on the configured address, if there is one. A port
// that is taken is a loop that fails, not an agent that does not start.
func (a *Agent) serveMetrics(ctx context.Context) error {
	address := a.config().Metrics.Listen
	if address == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w; set metrics.listen to another port, or to \"\"", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics.handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	a.loop("metrics").beat(nil)
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return ctx.Err()
}
