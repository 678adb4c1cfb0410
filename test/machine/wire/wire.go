// Package wire has the protocol between a test and the guest program in its machine: messages as
// lines of JSON, with IDs, so that several commands run at once. It owns the messages, their
// framing and the side of the test. It does not know the transport.
package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Port is the name of the virtio port in a VM; Socket is the path of the socket
// in a container. Mounts below /dev are none of systemd's business at shutdown.
const (
	Port   = "hostler.guest"
	Socket = "/dev/hostler-machine/guest.sock"
)

// Message is one line. Requests carry Session and ID, and the guest drops those
// of another session: a port outlives the boot that they were meant for.
type Message struct {
	Hello   *Hello `json:"hello,omitempty"` // from the guest, first of all
	Session string `json:"session,omitempty"`
	ID      uint64 `json:"id,omitempty"`

	// To the guest: a command, what it reads, and its end.
	Run   *Run   `json:"run,omitempty"`
	Stdin []byte `json:"stdin,omitempty"`
	EOF   bool   `json:"eof,omitempty"`
	Kill  bool   `json:"kill,omitempty"`
	Size  *Size  `json:"size,omitempty"`

	// From the guest: what a command prints, and how it ended.
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	Exit   *Exit  `json:"exit,omitempty"`
}

// Hello says which boot answers. A soft-reboot keeps the boot ID, but not when
// the manager started.
type Hello struct {
	Session          string    `json:"session"` // one life of the guest program
	BootID           string    `json:"bootID"`
	ManagerStartedAt time.Time `json:"managerStartedAt"`
}

// Run asks for a command, or for what the agent answers.
type Run struct {
	Command []string `json:"command,omitempty"`
	TTY     bool     `json:"tty,omitempty"` // on a terminal; all it prints is Stdout then
	// Ask is a path of the agent's API to be read in place of a command, which in a
	// VM takes the processor a third of a second. The answer is Stdout.
	Ask string `json:"ask,omitempty"`
}

// Size is a terminal's.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Exit is how a command ended. Error is set if it could not be started.
type Exit struct {
	Code  int    `json:"code"` // as a shell has it: 128 and the signal, if one ended it
	Error string `json:"error,omitempty"`
}

// Chunk is the most bytes in one Stdin, Stdout or Stderr.
const Chunk = 32 << 10

// Writer writes messages; it is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	to io.Writer
}

// NewWriter returns a writer. It begins with an empty line, which ends what an
// earlier boot may have left unfinished.
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

// Read calls handle for each message until the other side ends or fails. Lines
// that are no messages are what a dying boot left, and are passed over.
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
