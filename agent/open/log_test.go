package open

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"hostler.io/hostler/agent/config"
)

func TestTheLogIsAsConfigured(t *testing.T) {
	var text, lines bytes.Buffer
	for out, format := range map[*bytes.Buffer]string{&text: "text", &lines: "json"} {
		log, level, end := Log(out, config.Log{Format: format, Level: "warn"}, "")
		log.Info("not told")
		log.Warn("told", "component", "image-gc")
		SetLevel(level, "info")
		log.Info("told since")
		end()
	}
	if got := text.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "level=WARN msg=told component=image-gc\n") || !strings.Contains(got, `msg="told since"`) {
		t.Errorf("as text the log is %q", got)
	}
	var reported []map[string]string
	for line := range bytes.Lines(lines.Bytes()) {
		var fields map[string]string
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("as JSON the log has the line %q: %v", line, err)
		}
		reported = append(reported, fields)
	}
	if len(reported) != 2 || reported[0]["level"] != "WARN" || reported[0]["msg"] != "told" || reported[0]["component"] != "image-gc" || reported[0]["time"] == "" || reported[1]["msg"] != "told since" {
		t.Errorf("as JSON the log is %v", reported)
	}
}

// If the output blocks, for example because the journal hangs or the reader of a pipe is stopped,
// log calls do not wait. When it is read again, the queued records are written, with the number of
// dropped ones.
func TestNoCallOfTheLogWaitsForItsOutput(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		log, _, end := Log(write, config.Log{Format: format, Level: "error"}, "")
		const records = 10 * maxLogQueue
		for range records {
			log.Error(strings.Repeat("x", 100))
		}
		got := make(chan string)
		go func() {
			all, err := io.ReadAll(read)
			if err != nil {
				t.Error(err)
			}
			got <- string(all)
		}()
		for range 2 * maxLogQueue { // until the first is read again, and after that the queue
			log.Error("again")
		}
		end()
		if err := write.Close(); err != nil {
			t.Fatal(err)
		}
		all := <-got
		if n := strings.Count(all, "xxx"); n == 0 || strings.Count(all, "lost log records") == 0 || strings.Count(all, "\n") >= records {
			t.Errorf("as %s, %d lines are written, %d of them say how many were lost", format, strings.Count(all, "\n"), strings.Count(all, "lost log records"))
		}
	}
}
