// Package wire has the protocol between a test and the guest program in its machine: messages as
// lines of JSON, with IDs, so that several commands can run at once. It owns the messages, their
// framing and the test's side. It does not know the transport.
package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Port is the name of the virtio port in a VM. Socket is the path of the socket in a container:
// below /dev, where systemd unmounts nothing at shutdown.
const (
	Port   = "hostler.guest"
	Socket = "/dev/hostler-machine/guest.sock"
)

// Message is one line. Requests have Session and ID. The guest drops requests of another session,
// because a port outlives a boot.
type Message struct {
	Hello   *Hello `json:"hello,omitempty"` // from the guest, as the first message
	Session string `json:"session,omitempty"`
	ID      uint64 `json:"id,omitempty"`

	// To the guest: a command, its input, and its end.
	Run   *Run   `json:"run,omitempty"`
	Stdin []byte `json:"stdin,omitempty"`
	EOF   bool   `json:"eof,omitempty"`
	Kill  bool   `json:"kill,omitempty"`
	Size  *Size  `json:"size,omitempty"`

	// From the guest: a command's output and its exit code.
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	Exit   *Exit  `json:"exit,omitempty"`
}

// Hello identifies a boot. A soft-reboot keeps the boot ID, but changes the start time of the
// manager.
type Hello struct {
	Session          string    `json:"session"` // differs for each run of the guest program
	BootID           string    `json:"bootID"`
	ManagerStartedAt time.Time `json:"managerStartedAt"`
}

// Run requests a command, or a read of the agent's API.
type Run struct {
	Command []string `json:"command,omitempty"`
	TTY     bool     `json:"tty,omitempty"` // runs on a terminal; then all output is Stdout
	// Ask is a path of the agent's API, to be read instead of a command: in a VM, a command takes a
	// third of a second of processor time. The answer is Stdout.
	Ask string `json:"ask,omitempty"`
}

// Size is the size of a terminal.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Exit is the result of a command. Error is set if it could not be started.
type Exit struct {
	Code  int    `json:"code"` // as in a shell: 128 plus the signal if one ended it
	Error string `json:"error,omitempty"`
}

// Chunk is the maximum number of bytes in one Stdin, Stdout or Stderr.
const Chunk = 32 << 10

// Writer writes messages; it is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	to io.Writer
}

// NewWriter returns a writer. It writes an empty line first, which ends an incomplete line of an
// earlier boot.
func NewWriter(to io.Writer) (*Writer, error) {
	_, err := to.Write([]byte("\n"))
	return &Writer{to: to}, err
}

// Write sends a message.
func (w *Writer) Write(m Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.to.Write(append(line, '\n'))
	return err
}

// Read calls handle for each message until the other side ends or fails. It skips other lines,
// which a boot that ended may leave.
func Read(from io.Reader, handle func(Message)) error {
	in := bufio.NewReaderSize(from, 4*Chunk)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("read message: %w", err)
		}
		var m Message
		if json.Unmarshal(line, &m) == nil {
			handle(m)
		}
	}
}
