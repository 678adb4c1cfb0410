package config

import "hostler.io/hostler/internal/configfile"

// Types of values and faults.
type (
	Duration  = configfile.Duration
	Switch    = configfile.Switch
	Quantity  = configfile.Quantity
	Threshold = configfile.Threshold
	Fault     = configfile.Fault
	Faults    = configfile.Faults
	Key       = configfile.Key
)

// The values of a Switch.
const (
	Auto = configfile.Auto
	On   = configfile.On
	Off  = configfile.Off
)

// NotRead is why a file is ignored.
const NotRead = configfile.NotRead

// SchemaFile is where packages put the schema.
const SchemaFile = "/usr/share/hostler/hostler.schema.json"

// Loaded is a configuration and the source of each value.
type Loaded struct {
	Config
	configfile.Source
}

func spec() configfile.Spec[Config] {
	return configfile.Spec[Config]{
		Title: "Configuration of hostler", ManualPage: "hostler.yaml(5)",
		File: DefaultFile, DropIns: DefaultDropIns, Default: Default,
		Check: func(k *configfile.Checker, c *Config) {
			(&checker{k}).check(*c)
			c.Shutdown = c.Shutdown.settled(k.Given)
		},
	}
}

// Load reads file and then the drop-ins of folder, as configfile.Spec.Load does.
func Load(file, folder string) (Loaded, error) {
	config, source, err := spec().Load(file, folder)
	return Loaded{config, source}, err
}

// Draft is Load for files that no agent on this host reads, for example those of another host.
// Their owner is not checked.
func Draft(file, folder string) (Loaded, error) {
	config, source, err := spec().Draft(file, folder)
	return Loaded{config, source}, err
}

// Parse reads one document as if it were the only file. Faults contain name.
func Parse(name string, data []byte) (Config, error) { return spec().Parse(name, data) }

// Documented writes the defaults, with the documentation above each key.
func Documented() ([]byte, error) { return spec().Documented() }

// Keys lists every key in the order of Documented, each before the keys below it.
func Keys() ([]Key, error) { return spec().Keys() }

// Schema is the configuration as a JSON schema (draft 2020-12).
func Schema() ([]byte, error) { return spec().Schema() }

// YAML writes the configuration as a file that Load reads back as the same.
func (c Config) YAML() ([]byte, error) { return configfile.YAML(c) }

// Shown is YAML without users and passwords in URLs. It is for those who may not read the files,
// such as group hostler and callers over the network.
func (c Config) Shown() ([]byte, error) { return configfile.Shown(c) }

// Changed lists the keys whose values differ, in the order of the file. A map or a list counts as one
// key.
func Changed(a, b Config) []string { return configfile.Changed(a, b) }

// Live reports whether a reload can change a key. All other keys need a restart.
func Live(key string) bool { return configfile.Live[Config](key) }
