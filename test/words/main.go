// Command words checks the documentation, and the texts that the program prints, against the rules
// of CONTRIBUTING.md. It uses Vale.
//
//	words VALE FILE...
//
// VALE is the program; the files are Markdown. The working directory is the module. It prints its
// findings as FILE:LINE, and exits with 1 if there are any.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: words VALE FILE...")
		os.Exit(2)
	}
	found, err := run(os.Args[1], os.Args[2:])
	for _, alert := range found {
		fmt.Println(alert)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || len(found) > 0 {
		os.Exit(1)
	}
}

// run lets Vale check files and the texts of the module in the working directory.
func run(vale string, files []string) ([]string, error) {
	texts, err := collect(".")
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "words-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	collected := filepath.Join(folder, "texts.md")
	page, places := markdown(texts)
	if err := os.WriteFile(collected, []byte(page), 0o644); err != nil {
		return nil, err
	}
	alerts, err := check(vale, append(slices.Clone(files), collected))
	if err != nil {
		return nil, err
	}
	var found []string
	for file, list := range alerts {
		for _, a := range list {
			place := fmt.Sprintf("%s:%d", file, a.Line)
			if file == collected {
				place = places[a.Line]
			}
			found = append(found, fmt.Sprintf("%s: %s (%s)", place, a.Message, strings.Join(strings.Fields(a.Match), " ")))
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// alert is a finding of Vale.
type alert struct {
	Line           int
	Message, Match string
}

func check(vale string, files []string) (map[string][]alert, error) {
	cmd := exec.Command(vale, append([]string{"--config=test/words/vale.ini", "--output=JSON", "--no-global"}, files...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		err = nil // Vale has findings
	}
	alerts := map[string][]alert{}
	if err == nil {
		err = json.Unmarshal(out, &alerts)
	}
	if err != nil {
		return nil, fmt.Errorf("vale: %w: %s%s", err, out, complaint.String())
	}
	return alerts, nil
}
