package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// text is a text that a program prints, and the source line that contains it.
type text struct{ content, place string }

// collect returns the texts in the Go files of a module, without tests: all string constants with
// several words.
func collect(module string) ([]text, error) {
	var texts []text
	err := filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (path == "test" || path == "dist" || strings.HasPrefix(name, ".") && name != "." || name == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Field:
				return n.Tag == nil
			case *ast.KeyValueExpr: // commands to copy
				key, ok := n.Key.(*ast.Ident)
				return !ok || key.Name != "Example"
			case *ast.CallExpr:
				return !isRegexp(n)
			case *ast.BinaryExpr, *ast.BasicLit:
				content, ok := joined(n.(ast.Expr))
				if ok && isProse(content) {
					at := files.Position(n.Pos())
					texts = append(texts, text{content, fmt.Sprintf("%s:%d", at.Filename, at.Line)})
				}
				return !ok
			}
			return true
		})
		return nil
	})
	return texts, err
}

// joined returns a text that is composed of constants and other values, which become X.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		content, err := strconv.Unquote(e.Value)
		return content, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, first := joined(e.X)
		right, second := joined(e.Y)
		switch {
		case first && second:
			return left + right, true
		case first:
			return left + "X", true
		case second:
			return "X" + right, true
		}
	}
	return "", false
}

func isRegexp(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := f.X.(*ast.Ident)
	return ok && of.Name == "regexp"
}

var (
	prose = regexp.MustCompile(`[A-Za-z]{2,}[,:;]? [A-Za-z]{2,}`)
	verb  = regexp.MustCompile(`%[-+# 0]*[0-9.*]*[a-zA-Z]`)
)

func isProse(content string) bool { return prose.MatchString(content) }

// markdown returns a page with each text in its own paragraph, and the place of each line.
func markdown(texts []text) (page string, places map[int]string) {
	var b strings.Builder
	places = map[int]string{}
	line := 1
	for _, t := range texts {
		content := verb.ReplaceAllString(t.content, "X")
		for paragraph := range strings.SplitSeq(content, "\n") {
			paragraph = strings.TrimLeft(strings.TrimSpace(paragraph), "#>-*+ ")
			if paragraph == "" {
				continue
			}
			b.WriteString(paragraph + "\n\n")
			places[line] = t.place
			line += 2
		}
	}
	return b.String(), places
}
