package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// comparison is the last line of the output.
type comparison struct {
	Baseline string `json:"baseline"` // the commit
	Rounds   int    `json:"rounds"`
	// Old and New have the mean of each figure, or its values if it is not a number.
	Old   map[string]any     `json:"old"`
	New   map[string]any     `json:"new"`
	Ratio map[string]float64 `json:"ratio"` // new/old, of the figures that both have
}

// parseLastLine returns the JSON object in the last line of the output of a benchmark.
func parseLastLine(output string) (map[string]any, error) {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	var result map[string]any
	if json.Unmarshal([]byte(lines[len(lines)-1]), &result) != nil || result == nil {
		return nil, errors.New("the last line of its output is not a JSON object")
	}
	return result, nil
}

func summarize(old, latest []map[string]any) comparison {
	c := comparison{Old: meansOf(old), New: meansOf(latest), Ratio: map[string]float64{}}
	for name, value := range c.New {
		after, isNumber := value.(float64)
		before, wasNumber := c.Old[name].(float64)
		if isNumber && wasNumber && before != 0 {
			c.Ratio[name] = after / before
		}
	}
	return c
}

// meansOf returns the mean of each figure over the runs that have it. Of other values it returns the
// list.
func meansOf(runs []map[string]any) map[string]any {
	values := map[string][]any{}
	for _, run := range runs {
		for name, value := range run {
			values[name] = append(values[name], value)
		}
	}
	means := map[string]any{}
	for name, all := range values {
		if mean, ok := meanOf(all); ok {
			means[name] = mean
		} else {
			means[name] = all
		}
	}
	return means
}

func meanOf(values []any) (mean float64, ok bool) {
	for _, v := range values {
		n, isNumber := v.(float64)
		if !isNumber {
			return 0, false
		}
		mean += n / float64(len(values))
	}
	return mean, true
}

// printTable prints the figures that are numbers on both sides.
func printTable(out io.Writer, c comparison) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nmean of %d\t%s\t%s\t%s\t\n", c.Rounds, "old", "new", "new/old")
	for _, name := range slices.Sorted(maps.Keys(c.Ratio)) {
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%.3f\t\n", name, c.Old[name], c.New[name], c.Ratio[name])
	}
	w.Flush()
	fmt.Fprintln(out)
}
