package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"hostler.io/hostler/test/kube"
)

// spec is the result of a spec.
type spec struct {
	name    string
	state   string // Ginkgo's: passed, failed, skipped, pending, ...
	took    time.Duration
	message string
}

// report has the needed fields of Ginkgo's report.
type report struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string // It, or that of a step before or after all specs
		LeafNodeText            string
		LeafNodeLocation        struct{ FileName string }
		State                   string
		RunTime                 time.Duration
		Failure                 struct{ Message string }
	}
}

// suite runs the specs. Its flags disable what the bed lacks: pods in kube-system, and images.
func (g group) suite(ctx context.Context, c *kube.Cluster, logs string) ([]spec, error) {
	program, err := kube.Suite.Path(ctx)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "suite-")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(logs, "suite.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	out := filepath.Join(folder, "report.json")
	cmd := exec.CommandContext(ctx, program,
		"--kubeconfig="+c.AdminKubeconfig(), "--provider=skeleton", fmt.Sprintf("--num-nodes=%d", hollowNodes), "--minStartupPods=0", "--e2e-output-dir="+folder,
		"--ginkgo.focus-file="+g.specs, "--ginkgo.v", "--ginkgo.no-color", "--ginkgo.grace-period=5s", "--ginkgo.json-report="+out)
	cmd.Stdout, cmd.Stderr = log, log
	// On SIGTERM, it still reports the specs that have run.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	ran := cmd.Run()
	if ran != nil {
		ran = fmt.Errorf("the suite: %w", ran)
	}
	found, err := g.read(out)
	return found, errors.Join(ran, err)
}

// read returns the specs of the file, and other failures.
func (g group) read(file string) ([]spec, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var reports []report
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, err
	}
	var found []spec
	for _, r := range reports {
		for _, s := range r.SpecReports {
			ours := s.LeafNodeType == "It" && strings.HasSuffix(s.LeafNodeLocation.FileName, g.specs)
			if !ours && s.State != "failed" {
				continue
			}
			name := strings.TrimSpace(strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " "))
			if !ours {
				name = s.LeafNodeType
			}
			found = append(found, spec{name, s.State, s.RunTime, s.Failure.Message})
		}
	}
	slices.SortFunc(found, func(a, b spec) int { return strings.Compare(a.name, b.name) })
	if len(found) == 0 {
		return nil, fmt.Errorf("the suite has no spec of %s", g.specs)
	}
	return found, nil
}

// passed reports whether all specs passed in all beds.
func passed(columns []column) bool {
	return !slices.ContainsFunc(columns, func(c column) bool {
		return c.err != nil || slices.ContainsFunc(c.specs, func(s spec) bool { return s.state != "passed" })
	})
}

// summary describes the results, with a line for each spec.
func summary(columns []column) string {
	var text strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&text, "\n%s of Kubernetes with %s:\n", c.bed.specs, c.bed.name)
		table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		count := map[string]int{}
		for _, s := range c.specs {
			state := s.state
			if state != "passed" && state != "failed" && state != "skipped" {
				state = "failed" // such as panicked or timed out
			}
			count[state]++
			fmt.Fprintf(table, "%s\t%s\t%s\n", s.state, s.took.Round(100*time.Millisecond), s.name)
		}
		_ = table.Flush() // cannot fail in memory
		for _, s := range c.specs {
			if first, _, _ := strings.Cut(s.message, "\n"); first != "" {
				fmt.Fprintf(&text, "%s %s: %s\n", s.state, s.name, first)
			}
		}
		fmt.Fprintf(&text, "%d passed, %d failed, %d skipped; %d requests; %d %s deleted; %s; logs in %s\n", count["passed"], count["failed"], count["skipped"], c.requests, c.deleted, c.bed.deletes, c.took.Round(time.Second), c.logsKept)
		if c.err != nil {
			fmt.Fprintf(&text, "failed: %v\n", c.err)
		}
	}
	return text.String()
}
