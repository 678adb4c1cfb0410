package cli_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/agent/cli"
)

// endOfTerminal marks the end of the output. No command writes it.
const endOfTerminal = byte(0)

// onTerminal runs a command whose output is a terminal, and returns the output.
func onTerminal(t *testing.T, signals <-chan os.Signal, environment map[string]string, args ...string) (screen string, code int) {
	t.Helper()
	return onTerminalOf(t, 0, signals, environment, args...)
}

// onTerminalOf is onTerminal with the number of lines; 0 is the default of a new terminal.
func onTerminalOf(t *testing.T, lines uint16, signals <-chan os.Signal, environment map[string]string, args ...string) (screen string, code int) {
	t.Helper()
	master, terminal := openPty(t, lines, 80)
	read := make(chan string)
	go func() {
		// Read up to a mark and not to EIO: when a terminal is closed, its last bytes may be lost.
		got, _ := bufio.NewReader(master).ReadString(endOfTerminal)
		read <- strings.TrimSuffix(got, string(endOfTerminal))
	}()
	code = cli.Run(cli.Process{
		Args: args, Stdout: terminal, Stderr: terminal, Signals: signals, Version: "1.2.3",
		Getenv: func(name string) string { return environment[name] },
		Now:    func() time.Time { return night },
	})
	if _, err := terminal.Write([]byte{endOfTerminal}); err != nil {
		t.Fatal(err)
	}
	screen = <-read
	return strings.ReplaceAll(screen, "\r\n", "\n"), code
}

// openPty opens a terminal of this size, with its master side.
func openPty(t *testing.T, lines, columns uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns}); err != nil && lines > 0 {
		t.Fatal(err)
	}
	return master, terminal
}

func TestColourIsForTerminalsWithoutNOCOLOR(t *testing.T) {
	socket := serve(t, &backend{status: muchIsWrong()})
	plain := hostler(socket, "status").stdout
	colourful, code := onTerminal(t, nil, map[string]string{"HOSTLER_SOCKET": socket}, "status")
	if code != 0 || !strings.Contains(colourful, "\x1b[31;1mMemoryPressure\x1b[0m, for 90s: ") || !strings.Contains(colourful, "\x1b[32;1mReady\x1b[0m") {
		t.Errorf("status on a terminal = %d, %q, want what is wrong in red and what is well in green", code, colourful)
	}
	bare := strings.NewReplacer("\x1b[31;1m", "", "\x1b[32;1m", "", "\x1b[33;1m", "", "\x1b[0m", "").Replace(colourful)
	if bare != plain {
		t.Errorf("status on a terminal, colours apart =\n%s\nwant as elsewhere:\n%s", bare, plain)
	}
	if got, _ := onTerminal(t, nil, map[string]string{"HOSTLER_SOCKET": socket, "NO_COLOR": "1"}, "status"); got != plain {
		t.Errorf("status on a terminal with NO_COLOR = %q, want it without colours", got)
	}
	if got, _ := onTerminal(t, nil, map[string]string{"HOSTLER_SOCKET": socket}, "status", "-o", "json"); strings.Contains(got, "\x1b") {
		t.Errorf("status -o json on a terminal = %q, want it without colours", got)
	}
}

func TestATerminalThatKnowsNothingIsSentNothing(t *testing.T) {
	socket := serve(t, &backend{status: muchIsWrong()})
	dumb := map[string]string{"HOSTLER_SOCKET": socket, "TERM": "dumb"}
	if got, _ := onTerminal(t, nil, dumb, "status"); got != hostler(socket, "status").stdout {
		t.Errorf("status on a dumb terminal = %q, want it without colours", got)
	}
	signals := make(chan os.Signal, 1)
	b := &times{backend: &backend{status: muchIsWrong()}, asked: func(n int) {
		if n == 2 {
			signals <- os.Interrupt
		}
	}}
	dumb["HOSTLER_SOCKET"] = serve(t, b)
	if got, code := onTerminal(t, signals, dumb, "status", "--watch"); code != 0 || got == "" || strings.Contains(got, "\x1b") {
		t.Errorf("status --watch on a dumb terminal = %d, %q, want one screen after the other, without escape codes", code, got)
	}
}

func TestGCRunListsWhatItRemovedOnATerminal(t *testing.T) {
	socket := serve(t, fullBackend())
	got, _ := onTerminal(t, nil, map[string]string{"HOSTLER_SOCKET": socket}, "gc", "run")
	_, got, _ = strings.Cut(got, "REMOVED ")
	for _, want := range []string{"container   shop/db-0/init ", "log         /var/log/pods/shop_job-6_u6         3.0 MiB   pod-gone\n", "image       registry.example.net/shop/web:1.4   1.0 GiB   lru\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("gc run on a terminal = %q, want the line %q", got, want)
		}
	}
}

func TestGCRunShowsProgressInPlaceOnATerminal(t *testing.T) {
	socket := serve(t, fullBackend())
	got, _ := onTerminal(t, nil, map[string]string{"HOSTLER_SOCKET": socket}, "gc", "run")
	if !strings.Contains(got, "\r\x1b[Kwaiting for the running collection to finish\r\x1b[K1 of 4") || !strings.Contains(got, "\r\x1b[K2 of 4  removed image") || !strings.Contains(got, "\r\x1b[KREMOVED ") {
		t.Errorf("gc run on a terminal = %q, want its progress in place, gone before the report", got)
	}
}

// Most runs end before the plan does, because the low threshold is reached or the runtime fails.
func TestGCRunThatEndsEarlyLeavesNoProgressBehind(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"well":        {nil, "\r\x1b[KREMOVED "},
		"by an error": {errors.New("the runtime is asleep"), "\r\x1b[Khostler: the runtime is asleep"},
	} {
		b := fullBackend()
		b.steps, b.err = b.steps[:3], c.err
		got, _ := onTerminal(t, nil, map[string]string{"HOSTLER_SOCKET": serve(t, b)}, "gc", "run")
		if !strings.Contains(got, "2 of 4") || !strings.Contains(got, c.want) {
			t.Errorf("gc run that ends early, %s, on a terminal = %q, want its progress gone before the rest", name, got)
		}
	}
}
