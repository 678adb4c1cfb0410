package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/test/machine/debian"
)

// installed returns the files for systemd that hostler's packages install, as listed in
// packaging/nfpm.yaml: the service and its related files. The test provides program and
// configuration.
func installed(module string) (debian.Files, error) {
	list := filepath.Join(module, "packaging/nfpm.yaml")
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	var p struct {
		Contents []struct {
			Source      string `yaml:"src"`
			Destination string `yaml:"dst"`
			Info        struct {
				Mode os.FileMode `yaml:"mode"`
			} `yaml:"file_info"`
		} `yaml:"contents"`
	}
	if err := yaml.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("read %s: %w", list, err)
	}
	var files debian.Files
	for _, c := range p.Contents {
		if c.Source == "" || !strings.HasPrefix(c.Destination, "/usr/lib/") {
			continue // a folder, or not for systemd
		}
		data, err := os.ReadFile(filepath.Join(module, c.Source))
		if err != nil {
			return nil, err
		}
		files = append(files, debian.File{Path: strings.TrimPrefix(c.Destination, "/"), Mode: c.Info.Mode, Data: data})
	}
	if len(files) == 0 {
		return nil, errors.New(list + " installs nothing in /usr/lib")
	}
	return files, nil
}
