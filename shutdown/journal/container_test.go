package journal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/shutdown/journal"
)

// written is a journal that commit b2fdc02 wrote. It has a shutdown during which the agent was
// killed, an earlier cancelled one, and the last one of another boot.
const written = "testdata/b2fdc02.json"

// recordsOf returns the records in that file.
func recordsOf(t *testing.T) (records []*journal.Record) {
	t.Helper()
	data, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Record, Last, CalledOff *journal.Record }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return []*journal.Record{file.Record, file.Last, file.CalledOff}
}

func TestContainersAreWrittenAsTheyWereRead(t *testing.T) {
	keys := map[string]bool{}
	for _, r := range recordsOf(t) {
		for _, p := range r.Pods {
			again := p
			again.ContainerMaps = journal.ContainerMaps{}
			for _, c := range p.Containers() {
				again.Add(c)
			}
			before, after := encode(t, p), encode(t, again)
			if !bytes.Equal(before, after) {
				t.Errorf("pod is written as %s, want %s", after, before)
			}
			var fields map[string]any
			if err := json.Unmarshal(before, &fields); err != nil {
				t.Fatal(err)
			}
			for key := range fields {
				keys[key] = true
			}
		}
	}
	for _, key := range []string{"asked", "late", "runs", "names", "restarting", "byUnit", "signals", "stuck", "once", "sandbox", "exitCodes"} {
		if !keys[key] {
			t.Errorf("no pod of %s has %q, want the file to show that it is read", written, key)
		}
	}
}

func encode(t *testing.T, p journal.PodRecord) []byte {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAContainerIsReadAsItWasWritten(t *testing.T) {
	for _, c := range recordsOf(t)[0].Pods[2].Containers() { // of pod shop
		var m journal.ContainerMaps
		m.Add(c)
		if got := m.Containers(); len(got) != 1 || got[0] != c {
			t.Errorf("Containers() = %+v, want %+v", got, c)
		}
	}
	both := journal.ContainerMaps{Asked: recordsOf(t)[0].Pods[2].Asked, Late: recordsOf(t)[1].Pods[4].Late}
	for id := range both.Asked {
		both.Late[id] = both.Late["web0"]
	}
	for _, c := range both.Containers() {
		if asked, is := both.Asked[c.ID]; c.Restartable != is || is && !c.RequestedAt.Equal(asked) {
			t.Errorf("Containers() = %+v, want %s as asked has it", c, c.ID)
		}
	}
}

func TestAJournalOfAnEarlierVersionIsContinued(t *testing.T) {
	data, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "shutdown.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	same := journal.Open(path, "two@2", quiet)
	if got, want := same.Current(), recordsOf(t)[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("Current() = %+v, want %+v", got, want)
	}
	if got, want := pendingServices(same), "unit.service k3s.service"; got != want {
		t.Errorf("PendingServices() = %s, want %s", got, want)
	}
	const restarts = "docker/shop/shop0/c0/r docker/shop/shop1/c1 docker/shop/shop2/c2 docker/unit/unit0/c0/u" // without hand0, which runs only once
	if got := restartsOf(same); got != restarts {
		t.Errorf("Restarts() = %s, want %s", got, restarts)
	}
	next := journal.Open(path, "three", quiet)
	if got := restartsOf(next); got != restarts {
		t.Errorf("Restarts() of the next boot = %s, want %s", got, restarts)
	}
	if last := next.LastBoot(); last == nil || last.Graceful || len(last.Pods) != len(recordsOf(t)[0].Pods) {
		t.Errorf("LastBoot() = %+v, want the shutdown in the middle of which the host went down", last)
	}
}

func pendingServices(j *journal.Journal) string {
	var names []string
	for _, s := range j.PendingServices() {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

func restartsOf(j *journal.Journal) string {
	var list []string
	for _, r := range j.Restarts() {
		text := fmt.Sprintf("%s/%s/%s/%s", r.Runtime, r.Pod, r.ID, r.Name)
		if r.Restarting {
			text += "/r"
		}
		if r.ByUnit {
			text += "/u"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}
