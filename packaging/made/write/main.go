// Write writes the generated files of hostler's packages; `make package` runs it. All of them have
// the date SOURCE_DATE_EPOCH.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"hostler.io/hostler/packaging/made"
)

func main() {
	version := flag.String("version", "", "the version that is packaged")
	folder := flag.String("to", "", "the folder to fill")
	modules := flag.String("modules", "", "a file that lists the program's modules and their folders")
	binary := flag.String("bill", "", "print the bill of materials of this binary, and do nothing else")
	flag.Parse()
	release, err := released(*version)
	switch {
	case err != nil:
	case *binary != "":
		err = bill(release, *binary)
	default:
		err = fill(release, *folder, *modules)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "write: %v\n", err)
		os.Exit(1)
	}
}

func released(version string) (made.Release, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return made.Release{}, fmt.Errorf("read SOURCE_DATE_EPOCH: %w; set it to the commit's date, git log -1 --format=%%ct", err)
	}
	if version == "" {
		return made.Release{}, errors.New("there is no version; give -version")
	}
	return made.Release{Version: version, Date: time.Unix(seconds, 0)}, nil
}

func bill(release made.Release, binary string) error {
	text, err := release.BillOfMaterials(binary)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func fill(release made.Release, folder, modules string) error {
	list, err := os.Open(modules)
	if err != nil {
		return err
	}
	defer list.Close()
	files, err := release.Files(list)
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(folder, f.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Data, 0o644)); err != nil {
			return err
		}
	}
	return nil
}
