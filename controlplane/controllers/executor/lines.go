package executor

import (
	"log/slog"
	"time"
)

// mostLines bounds how many lines about the objects of one writer are logged in a minute. If a service logs 10,000 lines in
// half a minute, journald leaves out the next ones, also those about other hosts.
const mostLines = 1000

// lines counts the lines of a minute, by writer.
type lines struct {
	log   *slog.Logger
	since time.Time
	count map[string]int
}

// to returns the log for a line about an object; nothing is logged there if the writer has had its lines.
func (l *lines) to(object string, now time.Time) *slog.Logger {
	l.expire(now)
	writer := writerOf(object)
	if l.count[writer]++; l.count[writer] > mostLines {
		return slog.New(slog.DiscardHandler)
	}
	return l.log
}

// expire begins the next minute, and logs how many lines were left out in the last one.
func (l *lines) expire(now time.Time) {
	if l.count != nil && now.Sub(l.since) < time.Minute {
		return
	}
	for writer, n := range l.count {
		if n > mostLines {
			l.log.Warn("left out log lines about objects of one folder", "folder", writer, "lines", n-mostLines)
		}
	}
	l.since, l.count = now, map[string]int{}
}
