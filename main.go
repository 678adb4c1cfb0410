// Hostler is a node agent for container hosts: it stops pods in order before the host shuts
// down, removes unused images and dead containers, and reports the status of the host.
package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"hostler.io/hostler/agent/cli"
)

// version is set by the build: -ldflags "-X main.version=1.2.3".
var version = "0.1.0-dev"

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	os.Exit(cli.Run(cli.Process{
		Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Signals: signals, Now: time.Now, Version: version,
	}))
}
