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

// LastShutdown reads how the last shutdown went from the state folder, for a
// host whose agent does not run.
func LastShutdown(cfg config.Config, log *slog.Logger) (journal.History, error) {
	reader, err := probe.New("/")
	if err != nil {
		return journal.History{}, err
	}
	machine, _ := reader.Machine() // the boot ID is all that counts here
	history, err := journal.Peek(open.JournalFile(cfg), open.Boot(machine.BootID, systemd.NewManager(""), log))
	if errors.Is(err, fs.ErrNotExist) {
		return journal.History{}, nil
	}
	return history, err
}
