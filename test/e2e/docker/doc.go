// Package docker is scenarios of the agent on a host with a real Docker, from outside:
// its configuration, its commands, a reboot that a real logind announces. It has a lab of
// its own, so that package e2e needs no Docker.
package docker
