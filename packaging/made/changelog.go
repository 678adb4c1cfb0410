package made

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Maintainer is who answers for the packages, as packaging/nfpm.yaml has it, too.
const Maintainer = "The hostler authors <hostler@hostler.io>"

// changelog is the packages' own, as nfpm reads it. What users notice is in CHANGELOG.md,
// by its own versions; that of a package has one entry for each package.
func (r Release) changelog() ([]byte, error) {
	type deb struct {
		Urgency       string   `yaml:"urgency"`
		Distributions []string `yaml:"distributions"`
	}
	type change struct {
		Note string `yaml:"note"`
	}
	type entry struct {
		Version  string    `yaml:"semver"`
		Date     time.Time `yaml:"date"`
		Packager string    `yaml:"packager"`
		Deb      deb       `yaml:"deb"`
		Changes  []change  `yaml:"changes"`
	}
	text, err := yaml.Marshal([]entry{{
		Version: PackageVersion(r.Version), Date: r.Date.UTC(), Packager: Maintainer,
		Deb:     deb{Urgency: "medium", Distributions: []string{"unstable"}},
		Changes: []change{{"See /usr/share/doc/hostler/docs/CHANGELOG.md."}},
	}})
	if err != nil {
		return nil, fmt.Errorf("write changelog: %w", err)
	}
	return text, nil
}

// PackageVersion is a version as deb and rpm write and order it: with a tilde before what
// comes before a release, and the first package of that version.
func PackageVersion(version string) string {
	number, build, isBuild := strings.Cut(version, "+")
	number = strings.Replace(number, "-", "~", 1)
	if isBuild {
		number += "+" + build
	}
	return number + "-1"
}
