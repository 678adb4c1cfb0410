package arch_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoMutexIsHeldAcrossACall finds calls with a context, which may wait for a disk, a network or another process,
// while a mutex is held. Whoever wants the mutex would wait too, beyond its own deadline, and a simulated fleet could not
// order the steps. Use a channel with one element.
//
// The mutexes of systemd are for such calls: the host has one delay lock, and one change of logind's configuration at a
// time. Each call is bounded, and no simulated fleet makes it.
func TestNoMutexIsHeldAcrossACall(t *testing.T) {
	checked := 0
	for _, dir := range testFolders(t) {
		if strings.HasPrefix(dir, "../../test") || strings.HasPrefix(dir, "../../systemd") {
			continue
		}
		files := token.NewFileSet()
		for _, path := range must(filepath.Glob(filepath.Join(dir, "*.go"))) {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			checked++
			for _, at := range callsUnderLock(must(parser.ParseFile(files, path, nil, 0))) {
				t.Errorf("%s: a call with a context while a mutex is held", files.Position(at))
			}
		}
	}
	if checked < 600 {
		t.Errorf("checked %d files, want all", checked)
	}
}

// TestCallsUnderALockAreFound checks the check.
func TestCallsUnderALockAreFound(t *testing.T) {
	const text = `package x
func (x *X) One(ctx context.Context) {
	x.get(ctx)
	x.mu.Lock()
	x.get(ctx) // 5
	if x.ok { x.set(ctx, 1) } // 6
	x.mu.Unlock()
	x.get(ctx)
}
func (x *X) Two(ctx context.Context) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.n++
	go func() { x.get(ctx) }()
	return x.get(ctx) // 15
}
func (x *X) Three(ctx context.Context) {
	x.mu.Lock()
	n := x.n
	x.mu.Unlock()
	x.set(ctx, n)
}`
	files := token.NewFileSet()
	found := callsUnderLock(must(parser.ParseFile(files, "x.go", text, 0)))
	var lines []int
	for _, at := range found {
		lines = append(lines, files.Position(at).Line)
	}
	if len(lines) != 3 || lines[0] != 5 || lines[1] != 6 || lines[2] != 15 {
		t.Errorf("callsUnderLock() found lines %v, want 5, 6 and 15", lines)
	}
}

// callsUnderLock returns the calls with a context between a Lock and its Unlock, in one list of statements.
func callsUnderLock(file *ast.File) (found []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		block, is := n.(*ast.BlockStmt)
		if !is {
			return true
		}
		held := map[string]bool{}
		for _, s := range block.List {
			if mutex, does := locks(s); does != "" {
				switch does {
				case "Lock", "RLock":
					held[mutex] = true
				case "Unlock", "RUnlock":
					delete(held, mutex)
				}
				continue
			}
			if _, started := s.(*ast.GoStmt); len(held) > 0 && !started {
				found = append(found, callsWithContext(s)...)
			}
		}
		return true
	})
	return found
}

// locks returns the mutex that a statement locks or unlocks, and the method.
func locks(s ast.Stmt) (mutex, method string) {
	e, is := s.(*ast.ExprStmt)
	if !is {
		return "", ""
	}
	c, is := e.X.(*ast.CallExpr)
	if !is {
		return "", ""
	}
	m, is := c.Fun.(*ast.SelectorExpr)
	if !is || !strings.HasSuffix(m.Sel.Name, "ock") || len(c.Args) > 0 {
		return "", ""
	}
	return name(m.X), m.Sel.Name
}

// name returns the last part of an expression such as x.mu.
func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// callsWithContext returns the calls whose first argument is ctx, outside of functions that are only defined there.
func callsWithContext(s ast.Stmt) (found []token.Pos) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if len(n.Args) > 0 && name(n.Args[0]) == "ctx" && !isOf(n.Fun, "context") {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// isOf reports whether a function is of a package.
func isOf(f ast.Expr, pkg string) bool {
	s, is := f.(*ast.SelectorExpr)
	return is && name(s.X) == pkg
}
