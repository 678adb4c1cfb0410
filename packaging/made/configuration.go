package made

import (
	"fmt"
	"strings"

	"hostler.io/hostler/agent/config"
	serverconfig "hostler.io/hostler/controlplane/server/config"
)

// configurationText is hostler.yaml(5) up to its keys, and what comes after them.
const (
	configurationText = `# NAME
hostler.yaml \- configuration of hostler
# SYNOPSIS
**%s**

**%s/\*.yaml**
# DESCRIPTION
The first file is read, then those of the folder in the order of their names: maps merge,
lists replace. No file at all is a working configuration. An unknown or ill-typed field is
an error with file and line, which **hostler config check** reports; nothing is adjusted
silently.

Durations (90s, 5m, 1h30m), quantities (500m, 1Gi) and percentages (10%%) are written as
Kubernetes writes them.

**hostler reload** makes the agent read the files again. If one has an error, nothing changes.
Each key below says whether a change needs a reload or a restart. A restart stops no container.
**hostler config default** prints the keys below as a file, **hostler config show** the
effective configuration.

Editors that read JSON schemas complete and check a file that has this line. The schema is
what **hostler config schema** prints:

` + "```" + `
# yaml-language-server: $schema=` + config.SchemaFile + `
` + "```" + `
# KEYS
`
	configurationEnd = `# EXAMPLE
` + "```" + `
shutdown:
  gracePeriod: 2m
  gracePeriodCriticalPods: 30s
imageGC:
  highThresholdPercent: 75
  lowThresholdPercent: 70
` + "```" + `
# ENVIRONMENT
HOSTLER\_CONFIG names another file in the place of the first; the folder is then conf.d beside it.
# SEE ALSO
**hostler(1)**, **hostler-config(1)**, **hostler-reload(1)**, and the pages in /usr/share/doc/hostler/docs
`
)

// configurationPage is hostler.yaml(5), of the keys and their documentation.
func (r Release) configurationPage() (File, error) {
	keys, err := config.Keys()
	if err != nil {
		return File{}, fmt.Errorf("make man page of hostler.yaml: %w", err)
	}
	text := fmt.Sprintf(configurationText, config.DefaultFile, config.DefaultDropIns)
	return r.keysPage("hostler.yaml", text, keys, configurationEnd), nil
}

// serverConfigurationText is hostler-server.yaml(5) up to its keys, and what comes after them.
const (
	serverConfigurationText = `# NAME
hostler-server.yaml \- configuration of hostler server
# SYNOPSIS
**%s**

**%s/\*.yaml**
# DESCRIPTION
The first file is read, then those of the folder in the order of their names: maps merge,
lists replace. An unknown or ill-typed field is an error with file and line, which
**hostler config check --server** reports.

**systemctl reload hostler-server** makes the server read the files again. If one has an
error, or a changed key needs a restart, it fails, nothing changes, and the journal has
the reason.
# KEYS
`
	serverConfigurationEnd = `# SEE ALSO
**hostler-server(1)**, **hostler-fleet(1)**, and the pages in /usr/share/doc/hostler/docs
`
)

// serverConfigurationPage is hostler-server.yaml(5).
func (r Release) serverConfigurationPage() (File, error) {
	keys, err := serverconfig.Spec().Keys()
	if err != nil {
		return File{}, fmt.Errorf("make man page of hostler-server.yaml: %w", err)
	}
	text := fmt.Sprintf(serverConfigurationText, serverconfig.DefaultFile, serverconfig.DefaultDropIns)
	return r.keysPage("hostler-server.yaml", text, keys, serverConfigurationEnd), nil
}

// keysPage is a page of section 5 that lists keys.
func (r Release) keysPage(name, text string, keys []config.Key, end string) File {
	var b strings.Builder
	b.WriteString(r.title(name, 5))
	b.WriteString(text)
	for _, key := range keys {
		text := markdown(key.Doc)
		if key.Default != "" {
			text += " Default: " + markdown(key.Default) + ". " + key.Reload()
		}
		if strings.Contains(key.Path, ".") {
			fmt.Fprintf(&b, "**%s**\n: %s\n\n", markdown(key.Path), text)
		} else {
			fmt.Fprintf(&b, "### %s\n%s\n\n", key.Path, text)
		}
	}
	b.WriteString(end)
	return page("man5/"+name+".5", b.String())
}
