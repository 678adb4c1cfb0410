package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/test/machine/debian"
	"hostler.io/hostler/test/machine/wire"
)

// bed is the bed of a machine. Its methods, except dial, are not called concurrently.
type bed interface {
	start() error // powers the machine on
	cut() error   // cuts the power, and returns when the machine is off
	off() <-chan struct{}
	stuck() bool // the bed itself hangs during a boot; its power has to be cut
	dial(ctx context.Context) (net.Conn, error)
	press(keys button) error
	close() error
}

// button is a button of a machine.
type button string

const (
	ctrlAltDel  button = "ctrl-alt-del"
	powerButton button = "power button"
)

// commandLine makes the kernel quiet and systemd verbose, and reboots after a kernel panic. It
// disables tests of unused ciphers, and the lockup detector, which triggers on emulated processors
// of any loaded host.
const commandLine = "console=ttyS0 root=/dev/vda rw net.ifnames=0 mitigations=off no_timer_check cryptomgr.notests nowatchdog panic=1 quiet systemd.log_color=0 systemd.show_status=yes"

// The hardware of a VM was chosen for fast reboots. Instructions of a newer processor are slower if
// all are emulated. A larger cache of translated code costs more at each reboot than it saves. With
// QEMU's "max" and its default of 1 GiB, a reboot takes more than twice as long. It has one
// processor: two would wait for each other, and several machines share the host's better.
const (
	accelerator = "tcg,thread=multi,tb-size=512" // MiB
	processor   = "Nehalem-v1"
)

// vm is a machine in QEMU. Its chipset is q35, which has a power button and a keyboard. Its
// firmware is qboot, which boots a kernel at once.
type vm struct {
	qemu   debian.QEMU
	root   debian.Root
	dir    string
	memory int // MiB
	uplink bool

	mu        sync.Mutex // guards the fields below
	cmd       *exec.Cmd
	end       chan struct{} // closed when cmd has ended
	startedAt time.Time
}

func newVM(ctx context.Context, p prepared, o Options, dir string, files debian.Files) (*vm, error) {
	v := &vm{qemu: p.QEMU, root: p.Roots[o.Release], dir: dir, memory: o.MemoryMiB, uplink: o.Uplink, end: make(chan struct{})}
	close(v.end)
	own, err := os.Create(v.path("own-files.tar"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(files.Pack(own), own.Close()); err != nil {
		return nil, err
	}
	return v, v.root.Disk(ctx, v.qemu, v.path("disk.qcow2"))
}

func (v *vm) path(name string) string { return filepath.Join(v.dir, name) }

func (v *vm) start() error {
	args := []string{
		"-machine", "q35", "-accel", accelerator, "-cpu", processor, "-m", strconv.Itoa(v.memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-bios", "qboot.rom",
		"-kernel", v.root.Kernel, "-initrd", v.root.Initrd, "-append", commandLine,
		// The host does not lose its power, so data that the machine has flushed is safe in the host's
		// memory.
		"-drive", "if=none,id=root,format=qcow2,cache=unsafe,file=" + v.path("disk.qcow2"), "-device", "virtio-blk-pci,drive=root",
		"-drive", "if=none,id=own,format=raw,readonly=on,file=" + v.path("own-files.tar"), "-device", "virtio-blk-pci,drive=own",
		"-chardev", "file,id=console,append=on,path=" + v.path("console.log"), "-serial", "chardev:console",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=guest,server=on,wait=off,path=" + v.path("guest.sock"),
		"-device", "virtserialport,chardev=guest,name=" + wire.Port,
		"-device", "virtio-rng-pci",
		"-qmp", "unix:" + v.path("qmp.sock") + ",server=on,wait=off",
	}
	for _, folder := range v.qemu.Data() {
		args = append(args, "-L", folder)
	}
	if v.uplink {
		args = append(args, "-netdev", "user,id=uplink", "-device", "virtio-net-pci,netdev=uplink,romfile=")
	}
	if err := appendTo(v.path("console.log"), "\n"+powerOn+"\n"); err != nil {
		return err
	}
	log, err := os.OpenFile(v.path("qemu.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := v.qemu.Command(context.Background(), "qemu-system-x86_64", args...) // it outlives the caller's context
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	end := make(chan struct{})
	v.mu.Lock()
	v.cmd, v.end, v.startedAt = cmd, end, time.Now()
	v.mu.Unlock()
	go func() {
		_ = cmd.Wait() // a machine whose power is cut ends by a signal
		close(end)
	}()
	return nil
}

// powerOn is a line on the console that marks a boot without a reset.
const powerOn = "-- power on --"

func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

func (v *vm) off() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.end
}

func (v *vm) cut() error {
	v.mu.Lock()
	cmd, end := v.cmd, v.end
	v.mu.Unlock()
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Kill() // it may be off already
	<-end
	return nil
}

// firstMessageTimeout is how long a kernel may take, on a busy host, to its first message.
const firstMessageTimeout = 2 * time.Minute

// stuck reports that the machine was reset, without effect.
func (v *vm) stuck() bool {
	v.mu.Lock()
	startedAt := v.startedAt
	v.mu.Unlock()
	console, err := os.ReadFile(v.path("console.log"))
	if err != nil {
		return false
	}
	info, err := os.Stat(v.path("console.log"))
	if err != nil {
		return false
	}
	unresponsive := time.Since(info.ModTime()) >= firstMessageTimeout && time.Since(startedAt) >= firstMessageTimeout
	return hangs(string(console), unresponsive)
}

// hangs reports whether the last boot on a console hangs. QEMU, or the kernel in its first moments,
// sometimes hangs on a busy host. Or a processor loses its timer's interrupts, and the kernel logs
// a warning every 21 seconds. At that time nothing of the previous boot runs any more, and the new
// one has written nothing yet.
func hangs(console string, unresponsive bool) bool {
	lines := strings.FieldsFunc(console, func(r rune) bool { return r == '\n' || r == '\r' })
	stalls := 0
	for _, line := range slices.Backward(lines) {
		switch {
		case line == powerOn || strings.Contains(line, "reboot: ") || strings.Contains(line, "Starting new kernel"):
			return unresponsive || stalls >= 3
		case strings.Contains(line, "rcu: INFO:"):
			stalls++
		case !strings.Contains(line, "rcu: ") && strings.TrimSpace(line) != "":
			return false // it has booted
		}
	}
	return unresponsive
}

func (v *vm) dial(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", v.path("guest.sock"))
}

func (v *vm) press(b button) error {
	if b == powerButton {
		return v.sendCommand(`{"execute": "system_powerdown"}`)
	}
	return v.sendCommand(`{"execute": "send-key", "arguments": {"keys": [{"type": "qcode", "data": "ctrl"}, {"type": "qcode", "data": "alt"}, {"type": "qcode", "data": "delete"}]}}`)
}

// sendCommand sends a command to QEMU.
func (v *vm) sendCommand(order string) error {
	conn, err := net.Dial("unix", v.path("qmp.sock"))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	answers := json.NewDecoder(conn)
	for _, line := range []string{`{"execute": "qmp_capabilities"}`, order} {
		if _, err := conn.Write([]byte(line + "\n")); err != nil {
			return err
		}
		for {
			var answer struct {
				Return *struct{}              `json:"return"`
				Error  *struct{ Desc string } `json:"error"`
			}
			if err := answers.Decode(&answer); err != nil {
				return fmt.Errorf("read from QEMU: %w", err)
			}
			if answer.Error != nil {
				return fmt.Errorf("QEMU refuses %s: %s", strings.TrimSpace(line), answer.Error.Desc)
			}
			if answer.Return != nil {
				break // other lines are events
			}
		}
	}
	return nil
}

func (v *vm) close() error { return v.cut() }
