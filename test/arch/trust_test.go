package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readers are the functions that read or run a file without a check who may change it, and the
// files of packages that may call them. Files whose content decides something need a reason.
var readers = map[string][]string{
	"os.ReadFile": {
		"internal/configfile/load.go", // drafts that a person has checked
		"agent/owner/kubelet.go",
		"internal/listen/peer.go",            // logged-in users, from the kernel
		"controlplane/kubernetes/account.go", // kubelet's folder in a pod: writable by everybody in the pod, but for its read-only mount
	},
	"os.Open": {
		"status/conditions/run.go", // the header of a check: trust.Open opens the file that is run
		"internal/listen/bound.go", // /dev/null, to reserve a descriptor
	},
	"os.OpenFile": {},
}

// Package trust reads an administrator's configuration: otherwise another user could change it.
func TestConfiguredFilesAreReadByTrust(t *testing.T) {
	for _, folder := range []string{"agent/config", "agent/owner", "agent/inspect", "controlplane", "internal/configfile", "internal/listen", "runtime/runc/program", "status/conditions"} {
		eachFile(t, folder, func(name string, file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				if selector, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := selector.X.(*ast.Ident); ok {
						except, reads := readers[x.Name+"."+selector.Sel.Name]
						if reads && !slices.Contains(except, name) {
							t.Errorf("%s calls %s.%s: package trust reads what is configured, and refuses what others may change", name, x.Name, selector.Sel.Name)
						}
					}
				}
				return true
			})
		})
	}
}

// A program, its interpreter and the folders of both could have been changed by another user.
func TestProgramsAreCheckedBeforeTheyRun(t *testing.T) {
	found := 0
	for _, folder := range []string{"agent", "controlplane", "gc", "internal", "runtime", "shutdown", "status", "systemd"} {
		eachFile(t, folder, func(name string, file *ast.File) {
			runs, checks := "", false
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CompositeLit:
					if typeName(n.Type) == "exec.Cmd" {
						runs = "exec.Cmd"
					}
				case *ast.SelectorExpr:
					switch of := typeName(n); of {
					case "exec.Command", "exec.CommandContext", "os.StartProcess", "syscall.Exec", "unix.Exec":
						runs = of
					case "trust.Program", "trust.Command":
						checks = true
					}
				}
				return true
			})
			if runs != "" {
				found++
			}
			if runs != "" && !checks {
				t.Errorf("%s uses %s without trust.Program or trust.Command", name, runs)
			}
		})
	}
	if found < 3 {
		t.Errorf("found %d files that run a program, want those of checks, of runc and of reboots", found)
	}
}

// A client that follows a redirect sends its credentials to a place that the configuration does not name.
func TestClientsFollowNoRedirect(t *testing.T) {
	found := 0
	for _, folder := range []string{"agent", "controlplane", "docs/examples", "internal", "runtime", "shutdown", "status", "systemd"} {
		eachFile(t, folder, func(name string, file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				if x, is := n.(*ast.SelectorExpr); is && typeName(x) == "http.DefaultClient" {
					t.Errorf("%s uses http.DefaultClient, which follows redirects", name)
				}
				literal, is := n.(*ast.CompositeLit)
				if !is || typeName(literal.Type) != "http.Client" {
					return true
				}
				found++
				if !slices.ContainsFunc(literal.Elts, func(e ast.Expr) bool {
					pair, is := e.(*ast.KeyValueExpr)
					return is && typeName(pair.Key) == "CheckRedirect"
				}) {
					t.Errorf("%s makes an http.Client without CheckRedirect", name)
				}
				return true
			})
		})
	}
	if found < 4 {
		t.Errorf("found %d clients, want those of API servers, Docker, lock servers and the example", found)
	}
}

// Any user can open many connections to a listener, and send nothing or endlessly.
func TestServersAreBounded(t *testing.T) {
	found := 0
	for _, folder := range []string{"agent", "controlplane", "internal", "runtime", "shutdown", "status", "systemd"} {
		eachFile(t, folder, func(name string, file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				literal, ok := n.(*ast.CompositeLit)
				if !ok || typeName(literal.Type) != "http.Server" {
					return true
				}
				found++
				set := map[string]bool{}
				for _, e := range literal.Elts {
					if pair, ok := e.(*ast.KeyValueExpr); ok {
						set[typeName(pair.Key)] = true
					}
				}
				for _, bound := range []string{"ReadHeaderTimeout", "ReadTimeout", "WriteTimeout", "IdleTimeout", "MaxHeaderBytes"} {
					if !set[bound] {
						t.Errorf("%s makes an http.Server without %s", name, bound)
					}
				}
				return true
			})
		})
	}
	if found < 3 {
		t.Errorf("found %d servers, want those of the API, the metrics and the server role", found)
	}
}

// A runtime returns names and labels that authors of images and pods have chosen.
func TestAdaptersReturnCleanTexts(t *testing.T) {
	listed := []string{"[]runtime.Pod", "[]runtime.Image", "[]runtime.ImageUser", "[]runtime.Owned", "[]runtime.Layer", "runtime.Info"}
	found := 0
	for _, folder := range []string{"runtime/cri", "runtime/docker", "runtime/podman", "runtime/runc"} {
		eachFile(t, folder, func(name string, file *ast.File) {
			if filepath.Dir(name) != folder {
				return
			}
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || f.Recv == nil || !f.Name.IsExported() || f.Type.Results == nil || !slices.Contains(listed, typeName(f.Type.Results.List[0].Type)) {
					continue
				}
				found++
				if !cleans(f.Body) {
					t.Errorf("%s: %s returns what a runtime says without sanitize.Clean", name, f.Name.Name)
				}
			}
		})
	}
	if found < 20 {
		t.Errorf("found %d methods that list something, want all of four runtimes", found)
	}
}

// cleans reports whether each return statement of a method cleans its result, or the method passes
// it to a function that does.
func cleans(body *ast.BlockStmt) bool {
	clean, something := false, false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if selector, ok := n.Fun.(*ast.SelectorExpr); ok {
				if x, ok := selector.X.(*ast.Ident); ok && x.Name == "sanitize" && selector.Sel.Name == "Clean" {
					clean = true
				}
			}
		case *ast.ReturnStmt:
			if id, ok := n.Results[0].(*ast.Ident); !ok || id.Name != "nil" {
				something = true
			}
		}
		return true
	})
	return clean || !something
}

// typeName returns a type as text: a name in another package, or a slice of such a type.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.ArrayType:
		return "[]" + typeName(e.Elt)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// eachFile calls f for each file below a folder that is not a test.
func eachFile(t *testing.T, folder string, f func(name string, file *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		f(name, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
