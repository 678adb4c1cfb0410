// Package docker has tests of the agent on a host with a real Docker or Podman: its configuration,
// its commands, and a reboot that a real logind announces. It has its own lab, so that package e2e
// does not need Docker or Podman.
package docker
