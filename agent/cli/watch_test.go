package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/agent/api"
)

const (
	// patience bounds each wait of a watch.
	patience      = 5 * time.Minute
	watchInterval = 50 * time.Millisecond
)

// times returns a status, and counts the requests.
type times struct {
	*backend
	asked func(n int)

	mu sync.Mutex
	n  int
}

func (b *times) Status(ctx context.Context) (api.Status, error) {
	b.mu.Lock()
	b.n++
	n := b.n
	b.mu.Unlock()
	s, err := b.backend.Status(ctx)
	b.asked(n)
	return s, err
}

// pty is a terminal with its own hostler process, as over ssh.
type pty struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	ended  chan error

	mu   sync.Mutex
	got  string
	more *sync.Cond
}

// startOnPty starts hostler with a controlling terminal of this many lines and 80 columns.
func startOnPty(t *testing.T, lines uint16, socket string, args ...string) *pty {
	t.Helper()
	return startOnPtyOf(t, lines, 80, socket, args...)
}

func startOnPtyOf(t *testing.T, lines, columns uint16, socket string, args ...string) *pty {
	t.Helper()
	p := &pty{t: t, ended: make(chan error, 1)}
	p.more = sync.NewCond(&p.mu)
	p.master, p.slave = openPty(t, lines, columns)
	p.cmd = exec.Command("hostler", args...)
	p.cmd.Env = append(os.Environ(), "HOSTLER_SOCKET="+socket, "NO_COLOR=1", "GORACE=atexit_sleep_ms=0")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = p.slave, p.slave, p.slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := p.master.Read(buffer)
			p.mu.Lock()
			p.got += strings.ReplaceAll(string(buffer[:n]), "\r\n", "\n")
			p.more.Broadcast()
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// await waits until the output after the first skip bytes is as expected, and returns it.
func (p *pty) await(what string, skip int, as func(got string) bool) string {
	p.t.Helper()
	late := time.AfterFunc(patience, p.more.Broadcast)
	defer late.Stop()
	deadline := time.Now().Add(patience)
	p.mu.Lock()
	defer p.mu.Unlock()
	for !as(p.got[skip:]) {
		if time.Now().After(deadline) {
			p.t.Fatalf("waited %v until %s; the terminal got %q", patience, what, p.got[skip:])
		}
		p.more.Wait()
	}
	return p.got
}

// press sends a key that the terminal converts to a signal, and waits for the end.
func (p *pty) press(key string) error {
	p.t.Helper()
	if _, err := p.master.WriteString(key); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		p.t.Fatalf("hostler runs on, %v after %q", patience, key)
		return nil
	}
}

func TestAWatchIsDrawnInPlaceAndLeavesTheTerminalAsItWas(t *testing.T) {
	b := &times{backend: &backend{status: muchIsWrong()}, asked: func(int) {}}
	p := startOnPty(t, 24, serve(t, b), "status", "--watch")
	before, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	const end = "\x1b[K\n\x1b[J"
	got := p.await("two screens are drawn", 0, func(got string) bool { return strings.Count(got, end) >= 2 })
	screens := strings.SplitAfter(got, end)
	for _, screen := range screens[:2] {
		if !strings.HasPrefix(screen, "\x1b[H") || strings.Contains(screen, "\x1b[2J") || strings.Count(screen, "\n") != 23 {
			t.Errorf("a screen is %q, want it over the one before, and 23 lines on a terminal of 24", screen)
		}
		if first := strings.Index(screen, "rack3-node07"); first != len("\x1b[H") || !strings.Contains(screen, "lines more; enlarge the terminal to see them") {
			t.Errorf("a screen is %q, want the verdict first, and that its end lacks", screen)
		}
	}
	if err := p.press("\x03"); err != nil {
		t.Errorf("hostler status --watch ended with %v at Ctrl-C, want nothing", err)
	}
	after, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is %+v, %v, want it as before: %+v", after, err, before)
	}
	for _, order := range []string{"\x1b[?", "\x1b[2J", "\x1bc"} { // modes, such as an alternate screen or a hidden cursor
		if strings.Contains(got, order) {
			t.Errorf("the terminal received %q, which switches a mode that stays after the end: %q", order, got)
		}
	}
}

func TestAWatchOnALargeTerminalLacksNothing(t *testing.T) {
	socket := serve(t, &backend{status: healthy()})
	p := startOnPty(t, 100, socket, "status", "--watch")
	got := p.await("a screen is drawn", 0, func(got string) bool { return strings.Contains(got, "\x1b[J") })
	screen, _, _ := strings.Cut(got, "\x1b[J")
	// The process uses the current time, and the golden screen a fixed one.
	if n, want := strings.Count(screen, "\n"), strings.Count(hostler(socket, "status").stdout, "\n"); n != want {
		t.Errorf("a screen has %d lines, want %d: %q", n, want, screen)
	}
	if err := p.press("\x03"); err != nil {
		t.Errorf("hostler status --watch ended with %v at Ctrl-C, want nothing", err)
	}
}

// shownBy returns the screen of a terminal such as xterm. After text that fills a row, the cursor
// stays in the last column until more text follows.
func shownBy(got string, lines, columns int) []string {
	rows := make([][]rune, lines)
	y, x := 0, 0
	newline := func() {
		if x, y = 0, y+1; y == lines {
			rows, y = append(rows[1:], nil), y-1
		}
	}
	for got != "" {
		r, size := utf8.DecodeRuneInString(got)
		switch {
		case strings.HasPrefix(got, "\x1b[H"):
			x, y, size = 0, 0, 3
		case strings.HasPrefix(got, "\x1b[K"), strings.HasPrefix(got, "\x1b[J"):
			rows[y] = rows[y][:min(x, columns-1, len(rows[y]))]
			for i := y + 1; i < lines && got[2] == 'J'; i++ {
				rows[i] = nil
			}
			size = 3
		case r == '\n':
			newline()
		default:
			if x == columns {
				newline()
			}
			rows[y] = append(rows[y][:min(x, len(rows[y]))], append([]rune{r}, rows[y][min(x+1, len(rows[y])):]...)...)
			x++
		}
		got = got[size:]
	}
	shown := make([]string, lines)
	for i, row := range rows {
		shown[i] = string(row)
	}
	return shown
}

func TestAWatchBeginsWithTheVerdictOnTerminalsOfEachSize(t *testing.T) {
	socket := serve(t, &backend{status: muchIsWrong()})
	once := exec.Command("hostler", "status") // uses the same clock as the watch
	once.Env = append(os.Environ(), "HOSTLER_SOCKET="+socket)
	answer, err := once.Output()
	if err != nil {
		t.Fatal(err)
	}
	filling, _, _ := strings.Cut(string(answer), "\n")
	for name, size := range map[string]struct{ lines, columns int }{
		"one that the verdict fills": {24, len(filling)},
		"a narrow one":               {6, 40},
		"a wide one of few lines":    {3, 200},
	} {
		t.Run(name, func(t *testing.T) {
			p := startOnPtyOf(t, uint16(size.lines), uint16(size.columns), socket, "status", "--watch")
			got := p.await("two screens are drawn", 0, func(got string) bool { return strings.Count(got, "\x1b[J") >= 2 })
			shown := shownBy(got, size.lines, size.columns)
			verdict := strings.FieldsFunc(strings.TrimPrefix(got, "\x1b[H"), func(r rune) bool { return r == '\x1b' || r == '\n' })[0]
			if want := verdict[:min(size.columns, len(verdict))]; shown[0] != want || !strings.HasPrefix(want, "rack3-node07.example.net is ") {
				t.Errorf("the terminal shows %q, want it to begin with %q", shown, want)
			}
			if err := p.press("\x03"); err != nil {
				t.Errorf("hostler status --watch ended with %v at Ctrl-C, want nothing", err)
			}
		})
	}
}

func TestAWatchOutlivesTheAgent(t *testing.T) {
	socket := filepath.Join(filepath.Dir(serve(t, healthyBackend())), "w")
	end := serveAt(t, socket, healthyBackend())
	p := startOnPty(t, 50, socket, "status", "--watch")
	got := p.await("a screen is drawn", 0, func(got string) bool { return strings.Contains(got, "\x1b[J") })
	end()
	got = p.await("the loss is reported", len(got), func(got string) bool {
		return strings.Contains(got, "\x1b[Hno agent answers at "+socket) && strings.Contains(got, "showing the state of ") && strings.Contains(got, "is Ready")
	})
	serveAt(t, socket, healthyBackend())
	p.await("the host is shown again", len(got), func(got string) bool { return strings.Contains(got, "\x1b[Hrack3-node07.example.net is Ready") })
	if err := p.press("\x03"); err != nil {
		t.Errorf("hostler status --watch ended with %v at Ctrl-C, want nothing", err)
	}
}

func healthyBackend() *backend { return &backend{status: healthy()} }

// In a pipe, answers are appended, and an unreachable agent is reported on stderr.
func TestAWatchInAPipeAppends(t *testing.T) {
	signals := make(chan os.Signal, 1)
	one := healthyBackend()
	b := &times{backend: one, asked: func(n int) {
		if n == 3 {
			signals <- os.Interrupt
		}
	}}
	socket := serve(t, b)
	once := hostler(serve(t, one), "status").stdout
	got := hostlerUntil(signals, socket, "status", "--watch")
	if want := once + "\n" + once + "\n"; got.code != 0 || got.stderr != "" || got.stdout != want && got.stdout != want+once {
		t.Errorf("hostler status --watch in a pipe = %d, %q, %q, want the screen twice or thrice, with a line between", got.code, got.stderr, got.stdout)
	}
}

func TestAWatchInAPipeOutlivesTheAgent(t *testing.T) {
	signals := make(chan os.Signal, 1)
	socket := filepath.Join(filepath.Dir(serve(t, healthyBackend())), "w")
	var end func()
	gone := make(chan struct{})
	end = serveAt(t, socket, &times{backend: healthyBackend(), asked: func(n int) {
		if n == 2 {
			go func() { end(); close(gone) }() // during the second answer
			<-gone
		}
	}})
	go func() {
		<-gone
		serveAt(t, socket, &times{backend: healthyBackend(), asked: func(int) { signals <- os.Interrupt }})
	}()
	got := hostlerUntil(signals, socket, "status", "--watch")
	if n := strings.Count(got.stderr, "no agent answers at "); got.code != 0 || n != 1 || !strings.HasPrefix(got.stdout, hostler(socket, "status").stdout) {
		t.Errorf("hostler status --watch in a pipe = %d, %q, %q, want it to continue, and to say once that nobody answers", got.code, got.stderr, got.stdout)
	}
}

// A watch does not wait for an agent that never answered.
func TestAWatchWithoutAnAgentEnds(t *testing.T) {
	if got := hostler(filepath.Join(t.TempDir(), "none"), "status", "--watch"); got.code != 3 {
		t.Errorf("hostler status --watch = %d, %q, want 3", got.code, got.stderr)
	}
}
