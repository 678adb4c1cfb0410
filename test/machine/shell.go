package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"hostler.io/hostler/test/machine/wire"
)

const welcome = `hostler is Armed. Ctrl-D ends the shell and the machine. Give it work, and see how it ends:
  guest pod web; guest pod -critical -ends-slowly 3s db   (guest pod -h tells more)
  hostler shutdown plan
  systemctl reboot                                        (the shell comes back)
  hostler ps --last-shutdown
  cat /var/lib/hostler-work/*.events                      (what the pods saw of it)
`

// Shell boots a machine and gives a person a shell in it, on the program's terminal, until the
// shell ends. After a reboot of the machine there is a new shell. It prepares what Main prepares
// for tests, and may be called once.
func Shell(ctx context.Context, o Options) (err error) {
	o.Bare = true // the package is installed below, with all its files
	if err := enter(ctx, []Release{o.Release}, true, nil); err != nil {
		return err
	}
	s := &visit{ctx: ctx}
	defer func() {
		for _, cleanup := range slices.Backward(s.cleanups) {
			cleanup()
		}
		err = errors.Join(err, s.err)
	}()
	defer func() {
		if failed := recover(); failed != nil && failed != any(s) {
			panic(failed)
		}
	}()
	m, err := newMachine(s, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "booting Debian %s in a %s\n", o.Release, o.Bed)
	m.Start()
	m.Run("dpkg --force-confold --install " + Package)
	m.AwaitArmed()
	m.Options.Tolerant = true // the person may break hostler and other units
	fmt.Fprint(os.Stderr, welcome)
	typed := make(chan []byte)
	go readAll(os.Stdin, typed)
	for {
		err := m.shell(ctx, typed)
		if !errors.Is(err, wire.ErrGone) {
			return err
		}
		fmt.Fprintln(os.Stderr, "\nthe machine goes down")
		if m.AwaitDown("your command", func() error { return nil }).Off {
			fmt.Fprintln(os.Stderr, "it is off")
			return nil
		}
		fmt.Fprintln(os.Stderr, "it is up again")
	}
}

// shell runs one shell.
func (m *Machine) shell(ctx context.Context, typed <-chan []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := wire.Run{Command: []string{"bash", "-l"}, TTY: term.IsTerminal(0)}
	var sizes chan wire.Size
	if run.TTY {
		state, err := term.MakeRaw(0)
		if err != nil {
			return err
		}
		defer func() { _ = term.Restore(0, state) }()
		sizes = make(chan wire.Size)
		go sendSizes(ctx, sizes)
	}
	_, err := m.link.Exec(ctx, run, wire.Streams{Stdin: input{typed, ctx.Done()}, Stdout: os.Stdout, Stderr: os.Stderr, Sizes: sizes})
	return err
}

// readAll sends what it reads, and closes the channel at the end.
func readAll(from io.Reader, to chan<- []byte) {
	defer close(to)
	for {
		buffer := make([]byte, wire.Chunk)
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		to <- buffer[:n]
	}
}

// input is the input of one shell. The next shell continues to read it.
type input struct {
	typed <-chan []byte
	done  <-chan struct{}
}

func (i input) Read(p []byte) (int, error) {
	select {
	case data, ok := <-i.typed:
		if !ok {
			return 0, io.EOF
		}
		return copy(p, data), nil // p is large enough for a chunk
	case <-i.done:
		return 0, io.EOF
	}
}

// sendSizes sends the terminal's size, at the start and after changes.
func sendSizes(ctx context.Context, sizes chan<- wire.Size) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	defer signal.Stop(changes)
	for {
		if cols, rows, err := term.GetSize(0); err == nil {
			select {
			case sizes <- wire.Size{Rows: uint16(rows), Cols: uint16(cols)}:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return
		}
	}
}

// visit replaces the test of a person's machine.
type visit struct {
	ctx      context.Context
	cleanups []func()
	err      error
}

func (v *visit) Helper()                  {}
func (v *visit) Name() string             { return "shell" }
func (v *visit) Context() context.Context { return v.ctx }
func (v *visit) Cleanup(f func())         { v.cleanups = append(v.cleanups, f) }
func (v *visit) Failed() bool             { return v.err != nil }

func (v *visit) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (v *visit) Errorf(format string, args ...any) {
	v.err = errors.Join(v.err, fmt.Errorf(format, args...))
}

func (v *visit) Fatal(args ...any) { v.Fatalf("%s", fmt.Sprint(args...)) }

// Fatalf ends the visit, as it ends a test.
func (v *visit) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	panic(v)
}
