package inspect

import (
	"errors"
	"io/fs"
	"log/slog"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/systemd"
)

// LastShutdown reads the record of the last shutdown from the state folder. It works without an
// agent.
func LastShutdown(cfg config.Config, log *slog.Logger) (journal.History, error) {
	reader, err := probe.New("/")
	if err != nil {
		return journal.History{}, err
	}
	machine, _ := reader.Machine() // only the boot ID is needed
	history, err := journal.Peek(open.JournalFile(cfg), open.Boot(machine.BootID, systemd.NewManager(""), log))
	if errors.Is(err, fs.ErrNotExist) {
		return journal.History{}, nil
	}
	return history, err
}
