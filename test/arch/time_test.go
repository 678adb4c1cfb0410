package arch_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// leastPatience is how long a test in real time waits at least before it fails. A machine that is busy
// with something else stops a process for seconds.
const leastPatience = time.Minute

// TestNoVerdictDependsOnTheSpeedOfTheMachine finds tests in real time that fail if something takes
// longer than some seconds. test/bench measures.
func TestNoVerdictDependsOnTheSpeedOfTheMachine(t *testing.T) {
	checked := 0
	for _, dir := range testFolders(t) {
		files := token.NewFileSet()
		var parsed, others []*ast.File
		suite := false // whether the package has test code outside of tests
		for _, path := range must(filepath.Glob(filepath.Join(dir, "*.go"))) {
			file := must(parser.ParseFile(files, path, nil, 0))
			if strings.HasSuffix(path, "_test.go") {
				parsed = append(parsed, file)
				continue
			}
			others = append(others, file)
			suite = suite || slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
		}
		if suite {
			parsed = append(parsed, others...)
		}
		for _, found := range impatient(parsed) {
			t.Errorf("%s: %s: wait for an event for at least %v, or use testing/synctest", files.Position(found.at), found.what, leastPatience)
		}
		checked += len(parsed)
	}
	if checked < 300 {
		t.Errorf("checked %d files of tests, want all", checked)
	}
}

// expiring are functions that expect a short time to pass, or fail for another reason.
var expiring = map[string]bool{
	"TestAFrozenBusBlocksNoCaller":                    true,
	"TestAMissingSocketIsAwaitedBriefly":              true,
	"TestASocketWithoutAListenerIsNotAMissingSystemd": true,
	"TestAnAgentThatDoesNotAnswerInTime":              true,
	"TestContainerdHangsDiesAndReturns":               true,
	"outlasts":                                        true, // a term
	"judge":                                           true, // what the agent returned
	"unwell":                                          true, // it is called again
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// testFolders returns all folders of the module, without those of benchmarks.
func testFolders(t *testing.T) (dirs []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case d.Name() == "bench" || d.Name() == "dist" || d.Name() == ".git":
			return filepath.SkipDir
		}
		dirs = append(dirs, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// TestImpatientTestsAreFound checks the check.
func TestImpatientTestsAreFound(t *testing.T) {
	const text = `package x
const patience, brief = 5 * time.Minute, 20 * time.Second
func TestOne(t *testing.T) {
	select {
	case <-time.After(10 * time.Second): t.Fatal("1")
	case <-time.After(brief): t.Fatal("2")
	case <-time.After(patience): t.Fatal("not")
	case <-time.After(time.Second): again()
	}
	if took := time.Since(began); took > 3*time.Second { t.Error("3") }
	if time.Since(began) >= 1500*time.Millisecond { t.Error("4") }
	for end := time.Now().Add(brief); ; { if time.Now().After(end) { t.Fatal("5") } }
	ctx, cancel := context.WithTimeout(t.Context(), brief)
	if time.Since(began) > patience/2 || time.Since(began) < time.Second { t.Error("not") }
}
func TestExpires(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), brief)
	if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) { t.Fatal("not") }
}
func TestTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		select { case <-time.After(10 * time.Second): t.Fatal("not") }
	})
}
func inBubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }
func TestThree(t *testing.T) {
	inBubble(t, func(t *testing.T) { if time.Since(began) > time.Second { t.Fatal("not") } })
}`
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, found := range impatient([]*ast.File{file}) {
		got = append(got, found.what)
	}
	want := "fails after 10s; fails after 20s; fails if it takes longer than 3s; fails if it takes longer than 1.5s; fails after 20s; fails after 20s"
	if strings.Join(got, "; ") != want {
		t.Errorf("impatient() = %q, want %q", got, want)
	}
}

// finding is an impatient part of a test.
type finding struct {
	at   token.Pos
	what string
}

// impatient returns what fails too soon, in the functions of a package that do not run in simulated
// time.
func impatient(files []*ast.File) (all []finding) {
	names, bubbles := map[string]time.Duration{}, map[string]bool{"synctest": true}
	var functions []*ast.FuncDecl
	for _, file := range files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				constants(d, names)
			case *ast.FuncDecl:
				if d.Body == nil {
					continue
				}
				functions = append(functions, d)
				if !strings.HasPrefix(d.Name.Name, "Test") && mentions(d, map[string]bool{"synctest": true}) {
					bubbles[d.Name.Name] = true // it runs its argument in simulated time
				}
			}
		}
	}
	inside := map[string]bool{} // what functions in simulated time use
	for _, f := range functions {
		if mentions(f, bubbles) {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					inside[id.Name] = true
				}
				return true
			})
		}
	}
	for _, f := range functions {
		if !mentions(f, bubbles) && !inside[f.Name.Name] && !expiring[f.Name.Name] {
			all = append(all, inFunction(f, names)...)
		}
	}
	return all
}

// constants adds the durations among declared constants.
func constants(d *ast.GenDecl, names map[string]time.Duration) {
	for _, spec := range d.Specs {
		if values, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.CONST {
			for i, name := range values.Names {
				if i < len(values.Values) {
					if v, known := duration(values.Values[i], names); known {
						names[name.Name] = v
					}
				}
			}
		}
	}
}

// mentions reports whether a function uses one of these names.
func mentions(f *ast.FuncDecl, names map[string]bool) (does bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && names[id.Name] {
			does = true
		}
		return !does
	})
	return does
}

func inFunction(f *ast.FuncDecl, names map[string]time.Duration) (all []finding) {
	report := func(at token.Pos, e ast.Expr, format string) {
		if d, known := duration(e, names); known && d < leastPatience {
			all = append(all, finding{at, fmt.Sprintf(format, d)})
		}
	}
	since, expires := sinces(f), mentions(f, map[string]bool{"DeadlineExceeded": true, "ErrNoAnswer": true})
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if limit := contextLimit(n); limit != nil && !expires && fails(f) {
				report(n.Pos(), limit, "fails after %v")
			}
		case *ast.ForStmt:
			if limit := untilThen(n.Init); limit != nil && fails(f) {
				report(n.Pos(), limit, "fails after %v")
			}
		case *ast.CommClause:
			if after := call(received(n.Comm), "After"); after != nil && fails(n) {
				report(n.Pos(), after.Args[0], "fails after %v")
			}
		case *ast.IfStmt:
			if !fails(n.Body) {
				return true
			}
			ast.Inspect(n.Cond, func(c ast.Node) bool {
				if b, ok := c.(*ast.BinaryExpr); ok && (b.Op == token.GTR || b.Op == token.GEQ) && elapsed(b.X, since) {
					report(b.Pos(), b.Y, "fails if it takes longer than %v")
				}
				return true
			})
		}
		return true
	})
	return all
}

// received returns what a case of a select receives from.
func received(s ast.Stmt) ast.Expr {
	if e, ok := s.(*ast.ExprStmt); ok {
		if u, ok := e.X.(*ast.UnaryExpr); ok && u.Op == token.ARROW {
			return u.X
		}
	}
	return nil
}

// call returns the expression if it is a call of that function of package time.
func call(e ast.Expr, name string) *ast.CallExpr {
	if c, ok := e.(*ast.CallExpr); ok {
		if s, ok := c.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == name {
			if id, ok := s.X.(*ast.Ident); ok && id.Name == "time" {
				return c
			}
		}
	}
	return nil
}

// contextLimit returns the duration of a call of context.WithTimeout.
func contextLimit(c *ast.CallExpr) ast.Expr {
	if s, ok := c.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "WithTimeout" && len(c.Args) == 2 {
		return c.Args[1]
	}
	return nil
}

// untilThen returns the duration of a loop that begins with a deadline, time.Now().Add(duration).
func untilThen(init ast.Stmt) ast.Expr {
	assigned, ok := init.(*ast.AssignStmt)
	if !ok || len(assigned.Rhs) != 1 {
		return nil
	}
	if add, ok := assigned.Rhs[0].(*ast.CallExpr); ok && len(add.Args) == 1 {
		if s, ok := add.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Add" && call(s.X, "Now") != nil {
			return add.Args[0]
		}
	}
	return nil
}

// sinces returns the variables of a function that are set to time.Since.
func sinces(f *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
			for i, to := range a.Lhs {
				if name, ok := to.(*ast.Ident); ok && call(a.Rhs[i], "Since") != nil {
					names[name.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// elapsed reports whether an expression is time.Since, or one of the variables that are set to it.
func elapsed(e ast.Expr, since map[string]bool) bool {
	id, ok := e.(*ast.Ident)
	return ok && since[id.Name] || call(e, "Since") != nil
}

// fails reports whether a part of a test fails the test.
func fails(n ast.Node) (does bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			switch s.Sel.Name {
			case "Error", "Errorf", "Fatal", "Fatalf":
				does = true
			}
		}
		return !does
	})
	return does
}

// duration evaluates a constant expression of a duration.
func duration(e ast.Expr, names map[string]time.Duration) (time.Duration, bool) {
	units := map[string]time.Duration{"Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	switch e := e.(type) {
	case *ast.BasicLit:
		n, exact := constant.Int64Val(constant.ToInt(constant.MakeFromLiteral(e.Value, e.Kind, 0)))
		return time.Duration(n), exact && e.Kind == token.INT
	case *ast.Ident:
		d, known := names[e.Name]
		return d, known
	case *ast.SelectorExpr:
		d, known := units[e.Sel.Name]
		return d, known
	case *ast.ParenExpr:
		return duration(e.X, names)
	case *ast.BinaryExpr:
		x, knownX := duration(e.X, names)
		y, knownY := duration(e.Y, names)
		switch {
		case !knownX || !knownY:
		case e.Op == token.MUL:
			return x * y, true
		case e.Op == token.QUO && y != 0:
			return x / y, true
		case e.Op == token.ADD:
			return x + y, true
		}
	}
	return 0, false
}
