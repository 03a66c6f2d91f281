package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s4r.io/k8s4r/hack/internal/checkout"
)

// figure is one number of the house, with the limit that it must not exceed.
type figure struct {
	key     string
	limit   float64
	measure func(*tree) (value any, offenders []offender)
}

// listFigures returns all figures in the order of the JSON object.
func listFigures(clones []clone) []figure {
	return []figure{
		{"internal_folders", 15, countInternalFolders},
		{"one_word_function_names", 0.35, countOneWordNames},
		{"tells_whether", 0, countTellsWhether},
		{"nobody_somebody", 0, countAnonymousActors},
		{"contract_refs", 0, countContractRefs},
		{duplicateHelpers, 0, countDuplicateHelpers(clones)},
		{"upward_imports", 0, countUpwardImports},
		{"function_lines_median", 10, measureFunctions(50, 60)},
		{"function_lines_p99", 40, measureFunctions(99, 40)},
		{"function_lines_max", 60, measureFunctions(100, 60)},
		{"doc_dead_links", 0, countDeadLinks},
		{"max_doc_line", 120, measureDocLines(120)},
	}
}

const duplicateHelpers = "duplicate_helpers"

// options are the flags.
type options struct {
	verbose, enforce bool
	only             string
	paths            []string
}

func main() { os.Exit(runHouse(os.Args[1:], os.Stdout, os.Stderr)) }

// runHouse measures the checkout around the working directory and returns the exit code: 1 if
// a figure is over its limit and -enforce is set, 2 if the figures cannot be taken.
func runHouse(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if err != nil {
		return 2
	}
	isOver, err := measureCheckout(o, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "house:", err)
		return 2
	}
	if isOver && o.enforce {
		return 1
	}
	return 0
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("house", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.verbose, "v", false, "list each offender")
	flags.BoolVar(&o.enforce, "enforce", false, "exit 1 if a figure is over its limit")
	flags.StringVar(&o.only, "only", "", "take only these figures, separated by commas")
	err := flags.Parse(args)
	o.paths = checkout.CleanPrefixes(flags.Args())
	return o, err
}

// measureCheckout reads the checkout and prints its figures.
func measureCheckout(o options, stdout, stderr io.Writer) (isOver bool, err error) {
	root, err := checkout.FindRoot()
	if err != nil {
		return false, err
	}
	t, err := readTree(root)
	if err != nil {
		return false, err
	}
	t.only = o.paths
	for _, line := range t.unparsed {
		fmt.Fprintln(stderr, "house: skipped:", line)
	}
	if o.enforce && len(t.unparsed) > 0 {
		return false, errors.New("files with syntax errors cannot be measured")
	}
	var clones []clone
	if o.only == "" || slices.Contains(strings.Split(o.only, ","), duplicateHelpers) {
		if clones, err = findClones(root, t); err != nil {
			return false, err
		}
	}
	figures, err := selectFigures(listFigures(clones), o.only)
	if err != nil {
		return false, err
	}
	return printFigures(stdout, t, figures, o.verbose)
}

// selectFigures returns the figures whose keys only names, or all if it is empty.
func selectFigures(all []figure, only string) ([]figure, error) {
	if only == "" {
		return all, nil
	}
	var selected []figure
	for _, key := range strings.Split(only, ",") {
		i := slices.IndexFunc(all, func(f figure) bool { return f.key == key })
		if i < 0 {
			return nil, fmt.Errorf("no figure %q", key)
		}
		selected = append(selected, all[i])
	}
	return selected, nil
}

// printFigures prints the offenders if asked to, the table, and the JSON object as the last
// line.
func printFigures(w io.Writer, t *tree, figures []figure, verbose bool) (isOver bool, err error) {
	var fields []string
	var table strings.Builder
	columns := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "FIGURE\tVALUE\tLIMIT\t")
	for _, f := range figures {
		value, offenders := f.measure(t)
		if verbose {
			printOffenders(w, f.key, offenders)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			return false, err
		}
		fields = append(fields, fmt.Sprintf("%q:%s", f.key, encoded))
		mark := ""
		if toFloat(value) > f.limit {
			isOver, mark = true, "over"
		}
		fmt.Fprintf(columns, "%s\t%s\t%v\t%s\n", f.key, encoded, f.limit, mark)
	}
	if err := columns.Flush(); err != nil {
		return false, err
	}
	_, err = fmt.Fprintf(w, "%s{%s}\n", table.String(), strings.Join(fields, ","))
	return isOver, err
}

func printOffenders(w io.Writer, key string, offenders []offender) {
	if len(offenders) == 0 {
		return
	}
	fmt.Fprintf(w, "# %s\n", key)
	for _, o := range offenders {
		fmt.Fprintln(w, o)
	}
	fmt.Fprintln(w)
}

// toFloat converts the value of a figure, which is an int or a float64.
func toFloat(value any) float64 {
	if n, ok := value.(int); ok {
		return float64(n)
	}
	share, _ := value.(float64)
	return share
}
