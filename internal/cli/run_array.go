package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/indexset"
)

const (
	maxItems      = 1000
	maxItemsBytes = robotv1.MaxItemBytes + maxItems // with the ends of lines
)

// runArray are the options of a Job that runs the command once for each index of an array.
type runArray struct {
	indexes   string
	itemsFile string
	rangeSize int32

	items []string
}

func (a *runArray) addFlags(f *pflag.FlagSet) {
	f.StringVar(&a.indexes, "array", "", "indexes such as 0-99 or 0-9,20: run the command once for each; it finds its own in $K8S4R_TASK_INDEX")
	f.StringVar(&a.itemsFile, "items", "", "file with one item per line: run the command once for each; it finds its own in $K8S4R_TASK_ITEM")
	f.Int32Var(&a.rangeSize, "range-size", 0, "how many indexes a robot gets at a time, at most 1000; 0 means as many as give 128 ranges")
}

func (a *runArray) isSet() bool { return a.indexes != "" || a.itemsFile != "" }

// checkArray validates the options and reads the items.
func (a *runArray) checkArray(count int32) error {
	set, err := indexset.Parse(a.indexes)
	if err != nil {
		return fmt.Errorf("--array=%s: %w", shortenText(a.indexes, 40), err)
	}
	if a.items, err = readItems(a.itemsFile); err != nil {
		return err
	}
	return errors.Join(
		errorUnless(!a.isSet() || count == 1, "--count=%d: cannot be combined with --array or --items", count),
		errorUnless(set.Len() <= robotv1.MaxArraySize, "--array: has %d indexes; the maximum is %d", set.Len(), robotv1.MaxArraySize),
		errorUnless(a.indexes == "" || a.itemsFile == "" || set.Len() == len(a.items),
			"--items=%s: has %d items for %d indexes; there must be one for each", a.itemsFile, len(a.items), set.Len()),
		errorUnless(a.rangeSize >= 0 && a.rangeSize <= robotv1.MaxRangeSize, "--range-size=%d: must be from 0 to %d", a.rangeSize, robotv1.MaxRangeSize),
		errorUnless(a.rangeSize == 0 || a.isSet(), "--range-size: requires --array or --items"),
	)
}

// readItems returns the lines of a file that are not empty. Without a file there are none.
func readItems(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--items: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxItemsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("--items: %w", err)
	}
	var items []string
	for line := range bytes.Lines(text) {
		if item := strings.TrimRight(string(line), "\r\n"); item != "" {
			items = append(items, item)
		}
	}
	return items, errors.Join(
		errorUnless(len(text) <= maxItemsBytes, "--items=%s: larger than %d bytes; let the tasks read the items from a file or an artifact instead", path, robotv1.MaxItemBytes),
		errorUnless(len(items) > 0, "--items=%s: has no items", path),
		errorUnless(len(items) <= maxItems, "--items=%s: has more than %d items; let the tasks read the items from a file or an artifact instead", path, maxItems),
	)
}

// newArray returns the array of the Job's group, or nil if it has none.
func (a *runArray) newArray() *robotv1.Array {
	if !a.isSet() {
		return nil
	}
	return &robotv1.Array{Indexes: a.indexes, Items: a.items, RangeSize: a.rangeSize}
}
