// Command guest is the helper of a test inside its machine. It executes commands, runs pods, is the
// program in the pods, and replaces runc where there are no cgroup controllers. It also simulates
// k3s.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if filepath.Base(os.Args[0]) == "runc" {
		fail(runc(os.Args))
	}
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	switch verb {
	case "serve":
		fail(serve())
	case "pods":
		fail(runPods(os.Stdin))
	case "pod":
		fail(runPod(os.Args[2:]))
	case "orchestrator":
		fail(orchestrate())
	case "work":
		os.Exit(work(os.Args[2:]))
	default:
		fail(fmt.Errorf("usage: guest serve | pods <pods.json | pod NAME | orchestrator | work -name NAME [-ignore-term] ...; not %q", os.Args[1:]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
