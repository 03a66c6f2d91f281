package main

import (
	"os"
	"regexp"
	"testing"
)

func TestMakefile_ComparesEveryBenchmark(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := regexp.MustCompile(`(?m)^(bench-[a-z-]+):.*\n((?:\t.*\n)+)`).FindAllSubmatch(text, -1)
	if len(targets) == 0 {
		t.Fatal("the Makefile has no benchmarks")
	}
	usesSideBySide := regexp.MustCompile(`\$\(call run-bench,\w+\)`)
	for _, target := range targets {
		if !usesSideBySide.Match(target[2]) {
			t.Errorf("%s does not use run-bench, so BASELINE has no effect", target[1])
		}
	}
}
