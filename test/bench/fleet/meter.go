package fleet

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
)

// Meter reads the cost of a store and its processes so far.
type Meter struct {
	Metrics   string       // URL of etcd's metrics
	Client    *http.Client // for requests to Metrics
	Processes map[string]int
}

// Reading is one reading of a Meter.
type Reading struct {
	At time.Time

	// From etcd's metrics.
	Puts       float64 // of keys
	KeepAlives float64 // of etcd leases
	Syncs      Histogram
	Size, Used float64 // of the database, in bytes: its file, and the used part of it

	// From the kernel, by process.
	CPU map[string]float64 // seconds
	RSS map[string]float64 // bytes
}

// Names of etcd's metrics.
const (
	metricPuts       = "etcd_mvcc_put_total"
	metricKeepAlives = "etcd_debugging_lease_renewed_total"
	metricSyncs      = "etcd_disk_wal_fsync_duration_seconds"
	metricSize       = "etcd_mvcc_db_total_size_in_bytes"
	metricUsed       = "etcd_mvcc_db_total_size_in_use_in_bytes"
)

// Read reads all values at one moment.
func (m Meter) Read(ctx context.Context) (Reading, error) {
	r := Reading{At: time.Now(), CPU: map[string]float64{}, RSS: map[string]float64{}}
	for name, pid := range m.Processes {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return Reading{}, fmt.Errorf("read process %s: %w", name, err)
		}
		stat, err := p.Stat()
		if err != nil {
			return Reading{}, fmt.Errorf("read process %s: %w", name, err)
		}
		r.CPU[name], r.RSS[name] = stat.CPUTime(), float64(stat.ResidentMemory())
	}
	if err := m.ask(ctx, &r); err != nil {
		return Reading{}, fmt.Errorf("read %s: %w", m.Metrics, err)
	}
	return r, nil
}

// ask reads etcd's metrics.
func (m Meter) ask(ctx context.Context, r *Reading) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Metrics, nil)
	if err != nil {
		return err
	}
	answer, err := m.Client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return err
	}
	for name, into := range map[string]*float64{metricPuts: &r.Puts, metricKeepAlives: &r.KeepAlives, metricSize: &r.Size, metricUsed: &r.Used} {
		all := families[name].GetMetric()
		if len(all) != 1 {
			return fmt.Errorf("there are %d metrics %s, want 1", len(all), name)
		}
		*into = all[0].GetCounter().GetValue() + all[0].GetGauge().GetValue() // it is one of the two
	}
	syncs := families[metricSyncs].GetMetric()
	if len(syncs) != 1 {
		return fmt.Errorf("there are %d metrics %s, want 1", len(syncs), metricSyncs)
	}
	for _, bucket := range syncs[0].GetHistogram().GetBucket() {
		r.Syncs = append(r.Syncs, Bucket{bucket.GetUpperBound(), float64(bucket.GetCumulativeCount())})
	}
	return nil
}
