package trust

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Each program is x in a folder that only root can change. Beside it, o is a folder that others can
// change.
func TestProgramsThatOthersCanChangeAreRefused(t *testing.T) {
	const writable = "is writable by users other than root"
	for name, c := range map[string]struct {
		first   string // the first line of x; FOLDER is the folder
		at      string // the path that the error names, below the folder; empty if x is accepted
		message string
	}{
		"a script of a system's shell":           {first: "#!/bin/sh"},
		"with an argument":                       {first: "#! /bin/sh -e"},
		"no script":                              {first: "text"},
		"no interpreter":                         {first: "#!"},
		"an interpreter":                         {first: "#!FOLDER/fine"},
		"an interpreter that others can change":  {"#!FOLDER/bad", "bad", writable},
		"one in a folder that they can change":   {"#! FOLDER/o/fine -x", "o", writable},
		"a link that they can change":            {"#!FOLDER/o/link", "o", writable},
		"a link to what they can change":         {"#!FOLDER/link", "bad", writable},
		"an interpreter whose own is theirs":     {"#!FOLDER/script", "bad", writable},
		"an interpreter that is missing":         {"#!FOLDER/none", "none", syscall.ENOENT.Error()},
		"one that is missing in their folder":    {"#!FOLDER/o/none", "o", writable},
		"an interpreter without a folder":        {"#!fine", "x", "cannot be checked"},
		"itself":                                 {"#!FOLDER/x", "x", "too many levels"},
		"what env finds":                         {first: "#!/usr/bin/env sh"},
		"what env finds after a split":           {first: "#!/usr/bin/env -S sh -e"},
		"what env does not find":                 {first: "#!/usr/bin/env hostler-none"},
		"what env finds, that others can change": {"#!/usr/bin/env bad", "bad", writable},
		"after a split":                          {"#!/usr/bin/env -S\tbad -x", "bad", writable},
		"by its path":                            {"#!/usr/bin/env FOLDER/o/fine", "o", writable},
		"an env that others can change":          {"#!FOLDER/o/env sh", "o", writable},
		"env with a PATH":                        {"#!/usr/bin/env -S PATH=/tmp sh", "x", "cannot be checked"},
		"env with an option":                     {"#!/usr/bin/env -iS sh", "x", "cannot be checked"},
		"a binary of the system":                 {first: "\x7fELF"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "folder")
			check(t, os.MkdirAll(folder+"/o", 0o755), os.Chmod(folder+"/o", 0o777), os.Symlink("../fine", folder+"/o/link"), os.Symlink("bad", folder+"/link"))
			for file, text := range map[string]string{
				"x": strings.ReplaceAll(c.first, "FOLDER", folder) + "\ntext\n", "fine": "", "o/fine": "", "o/env": "", "bad": "", "script": "#!" + folder + "/bad\n",
			} {
				check(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o755))
			}
			check(t, os.Chmod(folder+"/bad", 0o777))
			real, _, err := Program(folder+"/x", folder+":/usr/bin:/bin")
			if c.at == "" {
				if err != nil || real != folder+"/x" {
					t.Errorf("Program() = %q, %v, want it accepted", real, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), filepath.Join(folder, c.at)+" ") && !strings.Contains(err.Error(), filepath.Join(folder, c.at)+":") || !strings.Contains(err.Error(), c.message) {
				t.Errorf("Program() = %v, want an error that names %s and says %q", err, c.at, c.message)
			}
			untrusted, refused := errors.AsType[*Error](err)
			if refused != (c.message == writable || c.message == "cannot be checked") || refused && untrusted.Hint == "" {
				t.Errorf("the error is %#v", err)
			}
		})
	}
}

// The loader runs before the program.
func TestTheLoaderOfAProgramIsChecked(t *testing.T) {
	folder := t.TempDir()
	loader := filepath.Join(folder, "loader")
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Phoff: 64, Phentsize: 56, Phnum: 1,
	}
	var program bytes.Buffer
	for _, part := range []any{header, elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(loader) + 1)}, []byte(loader + "\x00")} {
		check(t, binary.Write(&program, binary.LittleEndian, part))
	}
	check(t, os.WriteFile(loader, nil, 0o755), os.WriteFile(folder+"/x", program.Bytes(), 0o755))
	if _, _, err := Program(folder+"/x", ""); err != nil {
		t.Errorf("Program() = %v, want it accepted", err)
	}
	check(t, os.Chmod(loader, 0o777))
	_, _, err := Program(folder+"/x", "")
	if refused, ok := errors.AsType[*Error](err); !ok || refused.Subject != loader {
		t.Errorf("Program() with a loader that others can change = %v, want it refused", err)
	}
}

func TestCommandsAreFoundWhereOnlyRootPutsThem(t *testing.T) {
	folder := t.TempDir()
	check(t, os.Mkdir(folder+"/open", 0o755), os.Chmod(folder+"/open", 0o777), os.Mkdir(folder+"/bin", 0o755),
		os.WriteFile(folder+"/open/x", nil, 0o755), os.WriteFile(folder+"/bin/x", nil, 0o755), os.WriteFile(folder+"/bin/data", nil, 0o644))
	path := SearchPath(strings.Join([]string{folder + "/open", "bin", "", folder + "/none", folder + "/bin", folder + "/bin/x"}, ":"))
	if path != folder+"/bin" {
		t.Errorf("SearchPath() = %q, want the one folder that only root can change", path)
	}
	if got, err := Command("x", path); err != nil || got != folder+"/bin/x" {
		t.Errorf("Command() = %q, %v, want %s/bin/x", got, err, folder)
	}
	for _, name := range []string{"data", "none"} {
		if got, err := Command(name, path); !errors.Is(err, ErrNotInPath) {
			t.Errorf("Command(%q) = %q, %v, want %v", name, got, err, ErrNotInPath)
		}
	}
	if _, err := Command(folder+"/open/x", path); err == nil {
		t.Error("Command() of a file in an open folder = nil, want it refused")
	}
}
