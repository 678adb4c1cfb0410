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

// aliveInterval is how precisely the end of a container that gets no last word,
// because it is killed, can be told.
const aliveInterval = 200 * time.Millisecond

// diary is what one life of a workload writes down.
type diary struct {
	proto job.Event
	lines *os.File // events, each synced before anything else happens
	alive *os.File // one line, overwritten: when this life was last seen
	line  []byte   // that line
	time  int      // where in it the time begins
}

func newDiary(name, boot string) (*diary, error) {
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
	d := &diary{proto: job.Event{Namespace: parts[0], Pod: parts[1], Container: parts[2], Boot: boot, Life: rand.Text()}}
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

func (d *diary) event(kind job.Kind) job.Event {
	e := d.proto
	e.Kind, e.Time = kind, time.Now()
	return e
}

// note writes an event down for good.
func (d *diary) note(kind job.Kind, change func(*job.Event)) error {
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

// stillAlive writes the time into the line: all workloads do so five times a second, and
// an emulated processor has better things to do.
func (d *diary) stillAlive() error {
	d.line = time.Now().UTC().AppendFormat(d.line[:d.time], "2006-01-02T15:04:05.000000000Z") // of one length
	d.line = append(d.line, "\"}\n"...)
	_, err := d.alive.WriteAt(d.line, 0)
	return err
}

// work is what containers run. It returns the exit code.
func work(args []string) int {
	flags := flag.NewFlagSet("work", flag.ExitOnError)
	name := flags.String("name", "", "NAMESPACE/POD/CONTAINER")
	boot := flags.String("boot", "", "the machine's boot ID; if empty, what the file "+job.BootFile+" has")
	ignore := flags.Bool("ignore-term", false, "write SIGTERM down and go on")
	slowly := flags.Duration("ends-slowly", 0, "how long to take to end after SIGTERM")
	after := flags.Duration("ends-after", 0, "when to end without being asked; 0s: never")
	_ = flags.Parse(args) // exits on errors
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

func (d *diary) live(signals <-chan os.Signal, ignore bool, slowly, after time.Duration) error {
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
				continue // the first is Go's own
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
