package config

import (
	"path/filepath"
	"strings"
	"unicode"
)

const (
	// maxSocket is the longest path that a unix socket can have (unix(7)).
	maxSocket = 107
	// besideAPI is by how much longer than the path of the API's socket that of a plugin's
	// is, where hostler makes it one.
	besideAPI = len(".plugin/plugin.sock")
)

// Plugin says which program keeps what hostler tells.
type Plugin struct {
	Socket  string   `yaml:"socket" doc:"Absolute path of a unix socket that it serves already, as a service of its own." shape:"optionalPath"`
	Command []string `yaml:"command" doc:"Absolute path of an executable, and its arguments: hostler runs it, and tells it in HOSTLER_PLUGIN_SOCKET which socket to serve."`
}

// plugin checks that there is one plugin, and one way to it.
func (k *checker) plugin(c Config) {
	const socket, command = "controlPlane.plugin.socket", "controlPlane.plugin.command"
	p, wanted := c.ControlPlane.Plugin, c.ControlPlane.Type == "plugin"
	for field, given := range map[string]bool{socket: p.Socket != "", command: len(p.Command) > 0} {
		k.require(!given || wanted, field, "is of no use with control plane %s; set controlPlane.type: plugin", c.ControlPlane.Type)
	}
	k.require(p.Socket == "" || filepath.IsAbs(p.Socket) && len(p.Socket) <= maxSocket, socket, "%q is not an absolute path of at most %d bytes", p.Socket, maxSocket)
	if len(p.Command) > 0 {
		k.command(p.Command[0], command)
		k.require(len(c.API.Socket) <= maxSocket-besideAPI, "api.socket", "%q leaves no room beside it for the plugin's socket: it may have %d bytes", c.API.Socket, maxSocket-besideAPI)
	}
	if !wanted {
		return
	}
	k.require(p.Socket != "" || len(p.Command) > 0, "controlPlane.type", "plugin needs to know which: name the socket that it serves as %s, or have hostler run it as %s", socket, command)
	k.require(p.Socket == "" || len(p.Command) == 0, command, "is given beside %s: either somebody else runs the plugin, or hostler does", socket)
}

// command checks what is to be run, as far as the words tell.
func (k *checker) command(executable, field string) {
	if strings.ContainsFunc(executable, unicode.IsSpace) {
		k.require(false, field, "%q holds a blank; write each argument by itself: [/path/to/plugin, --argument]", executable)
		return
	}
	k.require(filepath.IsAbs(executable), field, "%q is not the absolute path of an executable", executable)
}
