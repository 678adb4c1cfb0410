package open

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"hostler.io/hostler/agent/config"
)

func TestTheLogIsAsConfigured(t *testing.T) {
	var text, lines bytes.Buffer
	for out, format := range map[*bytes.Buffer]string{&text: "text", &lines: "json"} {
		log, level := Log(out, config.Log{Format: format, Level: "warn"}, "")
		log.Info("not told")
		log.Warn("told", "component", "image-gc")
		SetLevel(level, "info")
		log.Info("told since")
	}
	if got := text.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "level=WARN msg=told component=image-gc\n") || !strings.Contains(got, `msg="told since"`) {
		t.Errorf("as text the log is %q", got)
	}
	var told []map[string]string
	for line := range bytes.Lines(lines.Bytes()) {
		var fields map[string]string
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("as JSON the log has the line %q: %v", line, err)
		}
		told = append(told, fields)
	}
	if len(told) != 2 || told[0]["level"] != "WARN" || told[0]["msg"] != "told" || told[0]["component"] != "image-gc" || told[0]["time"] == "" || told[1]["msg"] != "told since" {
		t.Errorf("as JSON the log is %v", told)
	}
}
