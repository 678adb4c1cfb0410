package timeline_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/timeline"
)

var began = time.Date(2026, 11, 17, 3, 12, 0, 0, time.UTC)

func after(seconds float64) time.Time {
	return began.Add(time.Duration(seconds * float64(time.Second)))
}

func pod(name, phase string, from, to, grace float64, outcome journal.Outcome) journal.PodRecord {
	p := journal.PodRecord{Namespace: "shop", Name: name, Phase: phase, Grace: metav1.Duration{Duration: time.Duration(grace * float64(time.Second))}, Outcome: outcome}
	if from >= 0 {
		p.StartedAt = after(from)
	}
	if to >= 0 {
		p.FinishedAt = after(to)
	}
	return p
}

// record is a shutdown with one lane of each kind.
func record() journal.Record {
	return journal.Record{
		StartedAt: began, FinishedAt: after(20),
		StoppedFirst: []journal.Service{
			{Name: "k3s.service", AskedAt: began, Took: metav1.Duration{Duration: 2 * time.Second}},
			{Name: "before.service", AskedAt: began.Add(-time.Hour), Took: metav1.Duration{Duration: time.Second}}, // stopped by an earlier drain
		},
		Pods: []journal.PodRecord{
			pod("spared", "critical", -1, -1, 10, journal.Skipped),
			pod("dns", "critical", 12, 13, 8, journal.Stopped),
			pod("stuck", "regular", 2, -1, 10, journal.Left),
			pod("web", "regular", 2, 4, 10, journal.Stopped),
			pod("deaf", "regular", 2, 12, 10, journal.Killed),
		},
	}
}

func TestTheTimeLineOfATerminal(t *testing.T) {
	for name, c := range map[string]struct {
		record journal.Record
		want   string
	}{
		"a house": {record(), `
                          0s               20s
          k3s.service     ##                    service
          before.service                        service
regular   shop/web          ##........          stopped
regular   shop/deaf         ##########          killed
regular   shop/stuck        ##################  left
critical  shop/dns                    #.......  stopped
critical  shop/spared                           skipped
`},
		"one that was cut off": {journal.Record{StartedAt: began, Pods: []journal.PodRecord{pod("web", "regular", 0, 5, 10, journal.Stopped), pod("deaf", "regular", 0, -1, 10, "")}}, `
                    0s                  10s
regular  shop/web   ############...........  stopped
regular  shop/deaf  #######################
`},
		"one that took no time": {journal.Record{StartedAt: began, FinishedAt: began, Pods: []journal.PodRecord{pod("web", "regular", 0, 0, 10, journal.Stopped)}}, `
                   0s                    0s
regular  shop/web  #                         stopped
`},
		"a clock that was set back": {journal.Record{StartedAt: began, FinishedAt: after(10), Pods: []journal.PodRecord{{Name: "web", StartedAt: after(5), FinishedAt: after(-3600), Outcome: journal.Stopped}}}, `
     0s                                 10s
web                     #                    stopped
`},
		"no pods": {journal.Record{StartedAt: began, FinishedAt: after(1)}, `
  0s                                              1s
`},
	} {
		got := "\n" + strings.Join(timeline.New(c.record).Text(52), "\n") + "\n"
		if got != c.want {
			t.Errorf("%s: Text() =%swant%s", name, got, c.want)
		}
	}
}

func TestNamesThatAreTooLongKeepTheirEnd(t *testing.T) {
	r := journal.Record{StartedAt: began, FinishedAt: after(1), Pods: []journal.PodRecord{pod(strings.Repeat("long-", 40)+"0", "regular", 0, 1, 1, journal.Stopped)}}
	for _, line := range timeline.New(r).Text(80) {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("Text(80) has a line of %d columns: %s", n, line)
		}
	}
	if text := strings.Join(timeline.New(r).Text(80), "\n"); !strings.Contains(text, "long-0 ") {
		t.Errorf("Text(80) =\n%s\nwant the end of the name", text)
	}
}

// The picture is valid XML for any pod names, and has a bar for each stop request.
func TestThePictureIsWhole(t *testing.T) {
	r := record()
	r.Pods[3].Name = `</text><script>"&`
	var b strings.Builder
	if err := timeline.New(r).SVG(&b, `reboot "<now>"`); err != nil {
		t.Fatal(err)
	}
	counts, text := map[string]int{}, ""
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		switch token := token.(type) {
		case xml.StartElement:
			counts[token.Name.Local]++
		case xml.CharData:
			text += string(token)
		}
	}
	if counts["script"] != 0 || counts["g"] != 7 || counts["rect"] != 1+2*5 {
		t.Errorf("SVG() has %v, want 7 lanes, 5 of them with two bars, and no script:\n%s", counts, b.String())
	}
	for _, want := range []string{`reboot "<now>"`, `shop/</text><script>"&`, "killed", "k3s.service: service, stop requested after 0s, took 2s", "20s"} {
		if !strings.Contains(text, want) {
			t.Errorf("SVG() says nothing of %s:\n%s", want, text)
		}
	}
}
