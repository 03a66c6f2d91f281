// Command words looks for words and phrases that a newcomer has to translate, in docs,
// comments, messages and pages, and prints what to write instead.
//
//	go run ./hack/words                # the whole checkout
//	go run ./hack/words internal/cli   # only files below these paths
//	go run ./hack/words -summary       # one line for each rule, the most frequent first
//
// It exits 1 if it finds one. The rules are in words.txt, places where a word is right in
// allowed.txt. An entry there that matches nothing is an error of a run over everything.
//
// Where it looks:
//
//   - Markdown, without code.
//   - Go: comments, and string literals with a space or in CamelCase, such as reasons of
//     conditions. Code in backticks in a comment is left out.
//   - TypeScript, HTML, YAML, shell scripts and Makefiles: everything.
//
// Generated files are left out, because their text comes from a file that is checked.
//
// Vale would be the usual tool. It finds words in the comments of Go but not in string
// literals, and its current release cannot be built from the module proxy.
package main
