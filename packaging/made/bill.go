package made

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// BillOfMaterials lists what a binary is made of, as CycloneDX: the modules and Go itself,
// as the compiler wrote them into it.
func (r Release) BillOfMaterials(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read what %s is made of: %w", binary, err)
	}
	bill := cyclonedx.NewBOM()
	program := component(info.Path, r.Version, "")
	program.Type, program.Name = cyclonedx.ComponentTypeApplication, "hostler"
	program.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	program.Properties = &[]cyclonedx.Property{}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			*program.Properties = append(*program.Properties, cyclonedx.Property{Name: "build:" + s.Key, Value: s.Value})
		}
	}
	bill.Metadata = &cyclonedx.Metadata{Timestamp: r.Date.UTC().Format(time.RFC3339), Component: &program}
	components := []cyclonedx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, module := range info.Deps {
		used := cmp.Or(module.Replace, module)
		components = append(components, component(used.Path, used.Version, used.Sum))
	}
	bill.Components = &components
	var b bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).Encode(bill); err != nil {
		return nil, fmt.Errorf("write bill of materials: %w", err)
	}
	return b.Bytes(), nil
}

// component is a module, with the checksum that go.sum has of it.
func component(path, version, sum string) cyclonedx.Component {
	// https://github.com/package-url/purl-spec: a version is percent-encoded, + included.
	name := "pkg:golang/" + path + "@" + url.QueryEscape(version)
	c := cyclonedx.Component{BOMRef: name, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: name}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) > 0 {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	return c
}
