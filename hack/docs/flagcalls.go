package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// flagCall is a call such as f.StringVar(&o.x, "x", "default", "usage").
type flagCall struct{ name, value, usage string }

// parseFlagCalls returns the flags that a source file defines, in their order.
func parseFlagCalls(file string) ([]flagCall, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return nil, err
	}
	var calls []flagCall
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 4 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strings.HasSuffix(method.Sel.Name, "Var") {
			return true
		}
		calls = append(calls, flagCall{formatExpr(call.Args[1]), formatDefaultExpr(call.Args[2]), formatExpr(call.Args[3])})
		return true
	})
	if len(calls) == 0 {
		return nil, fmt.Errorf("%s: defines no flags", file)
	}
	return calls, nil
}

// formatExpr returns a constant string, or the source of another expression.
func formatExpr(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
		return e.Value
	case *ast.BinaryExpr:
		return formatExpr(e.X) + formatExpr(e.Y)
	case *ast.CompositeLit:
		var parts []string
		for _, element := range e.Elts {
			parts = append(parts, formatExpr(element))
		}
		return strings.Join(parts, ",")
	case *ast.Ident:
		return wellKnownExprs[e.Name]
	case *ast.CallExpr:
		return wellKnownExprs[types.ExprString(e)]
	}
	return ""
}

// wellKnownExprs are the values of expressions in the flags of `k8s4r up` that are not literals.
var wellKnownExprs = map[string]string{
	"DefaultDataDir()":          "~/.k8s4r",
	"defaultDataDir":            "~/.k8s4r",
	`strings.Join(parts, ", ")`: "manager, server, broker, robots, node, console",
	"noArchive":                 "none",
	"5 * time.Minute":           "5m",
	"ca.DefaultRobotLifetime":   "24h",
	"retention.DefaultAge":      "24h",
	"retention.DefaultCount":    "1000",
}

// formatDefaultExpr returns the default of a flag as a code span. Defaults that mean "not set" are
// left out.
func formatDefaultExpr(e ast.Expr) string {
	if value, ok := wellKnownExprs[types.ExprString(e)]; ok {
		return formatCode(value)
	}
	return formatDefault(formatExpr(e))
}
