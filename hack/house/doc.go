// Command house measures how readable the checkout is, and prints the figures.
//
//	go run ./hack/house                     # a table, then one JSON object as the last line
//	go run ./hack/house -v                  # also each offender as file:line: text
//	go run ./hack/house -only doc_dead_links,max_doc_line -v
//	go run ./hack/house -v internal/broker  # only files below these paths
//	go run ./hack/house -enforce            # exit 1 if a figure is over its limit
//
// It reads the files that git tracks or would track, as they stand in the working tree.
//
// What is counted:
//
//   - internal_folders: folders directly below internal/.
//   - one_word_function_names: the share of functions and methods whose name is a single
//     word. A word is a CamelCase part; an acronym such as MQTT or IDs is one word. Function
//     literals are not counted.
//   - tells_whether: "tells", or another tense of it, before "whether" in any text file, also
//     if a line break is between the two.
//   - nobody_somebody: these two words in any text file, also as parts of identifiers. The
//     Unix account is allowed in quotes or backticks.
//   - contract_refs: § with "contract" before or a digit after it, and names of tests, subtests
//     and test files with the number of a section such as _4_10 or S4_10.
//   - duplicate_helpers: see below.
//   - upward_imports: imports that break the order of layers in imports.go. Files of tests,
//     and folders that only hold tests and tools, may import anything.
//   - function_lines_median, function_lines_p99, function_lines_max: lines of a function with
//     its signature and closing brace, without its comment (nearest-rank percentiles).
//   - doc_dead_links: links and images of *.md that name a missing file or heading. Headings
//     get the anchors that GitHub gives them. Links to other hosts are not followed.
//   - max_doc_line: the longest line of *.md in characters. Tables, fenced code and lines
//     that hold only a link are left out.
//
// Go code means files that are neither tests, generated, nor below testdata. "Any text file"
// includes tests, testdata and generated files, because a reader meets those too; notScanned
// lists what is left out.
//
// # Helpers
//
// duplicate_helpers counts the fragments of at least 40 tokens that dupl finds more than once
// among the Go files of internal/controllers, if the fragment is part of a helper:
//
//   - requeue: its lines, or the name of its function, mention wake, requeue or retryAfter;
//   - adoption: they mention adopt, or a function or field for owner references
//     (IsControlledBy, GetControllerOf, NewControllerRef, SetControllerReference,
//     OwnerReferences);
//   - default values: they mention default, or ptr.Deref.
//
// dupl compares the shapes of syntax trees and ignores names and literals. Its program is
// built by make bin/dupl.
package main
