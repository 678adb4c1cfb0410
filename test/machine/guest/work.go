package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/machine/job"
)

// aliveInterval is the precision of a container's end if it is killed and cannot record its end.
const aliveInterval = 200 * time.Millisecond

// recorder is the record of one run of a workload.
type recorder struct {
	proto job.Event
	lines *os.File // events, each synced before the workload continues
	alive *os.File // one line that is overwritten: when this run was last alive
	line  []byte   // that line
	time  int      // where the time begins in that line
}

func newDiary(name, boot string) (*recorder, error) {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("name %q is not NAMESPACE/POD/CONTAINER", name)
	}
	if boot == "" {
		var err error
		if boot, err = bootID(filepath.Join(job.SeenDir, job.BootFile)); err != nil {
			return nil, err
		}
	}
	d := &recorder{proto: job.Event{Namespace: parts[0], Pod: parts[1], Container: parts[2], Boot: boot, Life: rand.Text()}}
	line, err := json.Marshal(d.event(job.Alive))
	if err != nil {
		return nil, err
	}
	d.line = line
	d.time = bytes.LastIndex(line, []byte(`:"`)) + len(`:"`)
	base := filepath.Join(job.SeenDir, strings.Join(parts, "_"))
	if d.lines, err = os.OpenFile(base+".events", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, err
	}
	d.alive, err = os.OpenFile(base+"."+d.proto.Life+".alive", os.O_CREATE|os.O_WRONLY, 0o644)
	return d, err
}

func (d *recorder) event(kind job.Kind) job.Event {
	e := d.proto
	e.Kind, e.Time = kind, time.Now()
	return e
}

// note records an event and syncs it.
func (d *recorder) note(kind job.Kind, change func(*job.Event)) error {
	e := d.event(kind)
	change(&e)
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := d.lines.Write(append(line, '\n')); err != nil {
		return err
	}
	return d.lines.Sync()
}

// stillAlive writes the time into the line. It must be cheap: all workloads call it five times a
// second, on an emulated processor.
func (d *recorder) stillAlive() error {
	d.line = time.Now().UTC().AppendFormat(d.line[:d.time], "2006-01-02T15:04:05.000000000Z") // always of the same length
	d.line = append(d.line, "\"}\n"...)
	_, err := d.alive.WriteAt(d.line, 0)
	return err
}

// work is the program in containers. It returns the exit code.
func work(args []string) int {
	flags := flag.NewFlagSet("work", flag.ExitOnError)
	name := flags.String("name", "", "NAMESPACE/POD/CONTAINER")
	boot := flags.String("boot", "", "the machine's boot ID; if empty, what the file "+job.BootFile+" has")
	ignore := flags.Bool("ignore-term", false, "record SIGTERM and continue")
	slowly := flags.Duration("ends-slowly", 0, "how long to take to end after SIGTERM")
	after := flags.Duration("ends-after", 0, "when to end without being asked; 0s: never")
	_ = flags.Parse(args) // exits on an error
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	d, err := newDiary(*name, *boot)
	if err == nil {
		err = d.note(job.Started, func(*job.Event) {})
	}
	if err == nil {
		err = d.live(signals, *ignore, *slowly, *after)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest work:", err)
		return 1
	}
	return 0
}

func (d *recorder) live(signals <-chan os.Signal, ignore bool, slowly, after time.Duration) error {
	var ending <-chan time.Time
	if after > 0 {
		ending = time.After(after)
	}
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		if err := d.stillAlive(); err != nil {
			return err
		}
		select {
		case <-alive.C:
		case <-ending:
			return d.note(job.Ended, func(*job.Event) {})
		case s := <-signals:
			number, _ := s.(syscall.Signal)
			if number == unix.SIGURG || number == unix.SIGCHLD {
				continue // the Go runtime uses SIGURG
			}
			if err := d.note(job.Signal, func(e *job.Event) { e.Signal = unix.SignalName(number) }); err != nil {
				return err
			}
			if number == unix.SIGTERM && !ignore {
				ending = time.After(slowly)
			}
		}
	}
}
