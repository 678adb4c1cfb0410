//go:build integration

package etcd_test

import (
	"bufio"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"hostler.io/hostler/controlplane/objects"
	bed "hostler.io/hostler/test/etcd"
)

// requests returns how many calls of each method a member has started to serve.
func requests(t *testing.T, m *bed.Member) map[string]int {
	t.Helper()
	answer, err := http.Get(m.Endpoint + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	line := regexp.MustCompile(`^grpc_server_started_total\{.*grpc_method="(\w+)".*\} (\d+)$`)
	counts := map[string]int{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if match := line.FindStringSubmatch(lines.Text()); match != nil {
			n, err := strconv.Atoi(match[2])
			if err != nil {
				t.Fatal(err)
			}
			counts[match[1]] = n
		}
	}
	return counts
}

func TestARenewalIsOnePutAndOneKeepAlive(t *testing.T) {
	t.Parallel()
	c := bed.For(t, bed.Options{})
	s := at(t, c)
	before := requests(t, c.Members[0])
	version := objects.None
	for range 6 { // the renewals of one minute
		var err error
		if version, err = s.Put(patient(t), lease, objects.Put{Value: []byte("l"), Instead: version, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	after := requests(t, c.Members[0])
	for method, want := range map[string]int{"Txn": 6, "LeaseGrant": 1, "LeaseKeepAlive": 5, "Range": 0, "Authenticate": 0} {
		if got := after[method] - before[method]; got != want {
			t.Errorf("requests %s for the first minute of renewals = %d, want %d", method, got, want)
		}
	}
}
