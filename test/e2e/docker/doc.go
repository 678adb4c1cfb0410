// Package docker is scenarios of the agent on a host with a real Docker or Podman, from
// outside: its configuration, its commands, a reboot that a real logind announces. It has
// a lab of its own, so that package e2e needs neither.
package docker
