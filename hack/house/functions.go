package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"math"
	"slices"
	"unicode"
)

// function is one declaration of a function or method.
type function struct {
	path        string
	line, lines int
	name        string
}

// listFunctions returns the functions of the selected code.
func listFunctions(t *tree) []function {
	var all []function
	for _, f := range t.selectedCode() {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				first, last := f.fset.Position(fn.Pos()).Line, f.fset.Position(fn.End()).Line
				all = append(all, function{f.path, first, last - first + 1, fn.Name.Name})
			}
		}
	}
	return all
}

// countOneWordNames returns the share of functions with a one-word name.
func countOneWordNames(t *tree) (any, []offender) {
	all := listFunctions(t)
	var found []offender
	for _, fn := range all {
		if countWords(fn.name) <= 1 {
			found = append(found, offender{fn.path, fn.line, fn.name})
		}
	}
	share := float64(len(found)) / float64(max(len(all), 1))
	return math.Round(share*1e4) / 1e4, found
}

// countWords returns how many CamelCase words name has. A run of capitals is one word, up to
// the capital that starts the next word: HTTPServer has two. Underscores separate words.
func countWords(name string) int {
	words := 0
	runes := []rune(name)
	for i := 0; i < len(runes); words++ {
		for i < len(runes) && runes[i] == '_' {
			i++
		}
		if i == len(runes) {
			break
		}
		i = findWordEnd(runes, i)
	}
	return words
}

// findWordEnd returns the index after the word starting at i.
func findWordEnd(runes []rune, i int) int {
	capitals := i
	for capitals < len(runes) && unicode.IsUpper(runes[capitals]) {
		capitals++
	}
	lower := capitals
	for lower < len(runes) && !unicode.IsUpper(runes[lower]) && runes[lower] != '_' {
		lower++
	}
	isPlural := lower == capitals+1 && runes[capitals] == 's' // IDs, URLs
	if capitals-i > 1 && lower > capitals && !isPlural && unicode.IsLower(runes[capitals]) {
		return capitals - 1
	}
	return lower
}

// measureFunctions returns a check of the given percentile of function lengths. Offenders
// are the functions that are longer than limit, the longest first.
func measureFunctions(percentile, limit int) func(*tree) (any, []offender) {
	return func(t *tree) (any, []offender) {
		all := listFunctions(t)
		if len(all) == 0 {
			return 0, nil
		}
		slices.SortStableFunc(all, func(a, b function) int { return cmp.Compare(b.lines, a.lines) })
		var found []offender
		for _, fn := range all {
			if fn.lines > limit {
				found = append(found, offender{fn.path, fn.line, fmt.Sprintf("%s has %d lines", fn.name, fn.lines)})
			}
		}
		rank := (percentile*len(all) + 99) / 100 // nearest rank, rounded up
		return all[len(all)-rank].lines, found
	}
}
