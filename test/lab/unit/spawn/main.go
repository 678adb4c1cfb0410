// Command spawn is what runs in the lab of test/lab/unit: it becomes the service manager
// (manager), is the process of each unit, which starts a program for who listens at a socket
// (serve), tries there what units forbid (try), and holds connections to what a unit serves
// (hold).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"hostler.io/hostler/test/lab/unit/attempt"
	"hostler.io/hostler/test/lab/unit/message"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "spawn:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 3 && args[0] == "manager":
		return manager(args[1], args[2])
	case len(args) == 3 && args[0] == "try":
		return json.NewEncoder(os.Stdout).Encode(attempt.All(args[1], args[2]))
	case len(args) == 3 && args[0] == "hold":
		return hold(args[1], args[2])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

// serve starts programs on request at a socket, and reports how they ended.
func serve(socket string) error {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return err
	}
	defer conn.Close()
	var r message.Request
	files, err := message.Receive(conn, &r)
	if err != nil {
		return err
	}
	if len(files) < 2 {
		return errors.New("a request without standard output and standard error")
	}
	cmd := &exec.Cmd{Path: r.Path, Args: r.Args, Env: r.Env, Stdout: files[0], Stderr: files[1], ExtraFiles: files[2:]}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as what systemd starts
	err = cmd.Start()
	for _, f := range files {
		_ = f.Close() // the program alone holds them on
	}
	if err != nil {
		return message.Send(conn, message.Answer{Error: err.Error()})
	}
	if err := message.Send(conn, message.Answer{PID: cmd.Process.Pid}); err != nil {
		return err
	}
	_ = cmd.Wait() // how it has ended is its state
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return message.Send(conn, message.Answer{PID: cmd.Process.Pid, Status: &status})
}
