package main

import "testing"

// The phrases are put together here, so that this file does not count.
const (
	telling = "tells " + "whether"
	no      = "no" + "body"
	some    = "some" + "body"
	section = "§"
)

func TestCountTellsWhether(t *testing.T) {
	tree := newTree(map[string]string{
		"a.go":      "package a\n\n// A " + telling + " it ends. B tells\n// whether it starts.\nconst T = `tell" + "ing whether`\n",
		"docs/a.md": "It tol" + "d\nwhether. It tells why, whether or not.\n",
		"a.png":     "\x00" + telling,
		"LICENSE":   telling,
	})
	got, offenders := countTellsWhether(tree)
	checkFigure(t, got, 4, offenders,
		"a.go:3: // A "+telling+" it ends. B tells",
		"a.go:3: // A "+telling+" it ends. B tells",
		"a.go:5: const T = `tell"+"ing whether`",
		"docs/a.md:1: It tol"+"d")
}

func TestCountAnonymousActors(t *testing.T) {
	tree := newTree(map[string]string{
		"a.go":        "package a\n\nconst user = \"" + no + "\" // " + no + "\n",
		"a_test.go":   "package a\n\nfunc TestNo" + "bodyReads() {}\n",
		"config.yaml": "# For Some" + "body.\nuser: '" + no + "'\n",
		"docs/a.md":   "The account `" + no + "`. The figure " + no + "_" + some + ". The body.\n",
	})
	got, offenders := countAnonymousActors(tree)
	checkFigure(t, got, 3, offenders,
		"a.go:3: const user = \""+no+"\" // "+no,
		"a_test.go:3: func TestNo"+"bodyReads() {}",
		"config.yaml:1: # For Some"+"body.")
}

func TestCountContractRefs(t *testing.T) {
	tree := newTree(map[string]string{
		"a.go":               "package a\n\n// Run (contract " + section + "4) is like MQTT " + section + " 3.1, see (contract\n// " + section + "2).\nfunc Test_1_2() {}\n",
		"a_test.go":          "package a\n\nfunc TestRun_4" + "_10(t *T) {\n\tt.Run(\"S4" + "_10 starts\", f)\n\tt.Run(\"r1_2\", f)\n}\n",
		"s4" + "_10_test.go": "package a\n",
		"docs/a.md":          "The contract of the section " + section + "a.\n",
	})
	got, offenders := countContractRefs(tree)
	checkFigure(t, got, 6, offenders,
		"a.go:3: // Run (contract "+section+"4) is like MQTT "+section+" 3.1, see (contract",
		"a.go:3: // Run (contract "+section+"4) is like MQTT "+section+" 3.1, see (contract",
		"a.go:3: // Run (contract "+section+"4) is like MQTT "+section+" 3.1, see (contract",
		"a_test.go:3: func TestRun_4"+"_10(t *T) {",
		"a_test.go:4: t.Run(\"S4"+"_10 starts\", f)",
		"s4"+"_10_test.go: file is named after a section")
}
