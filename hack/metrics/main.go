// Command metrics writes the tables of docs/metrics.md from the metrics that the programs
// register.
package main

import (
	"fmt"
	"os"

	"k8s4r.io/k8s4r/internal/metricdoc"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write() error {
	programs, err := metricdoc.Programs()
	if err != nil {
		return err
	}
	now, err := os.ReadFile(metricdoc.File)
	if err != nil {
		return err
	}
	page, err := metricdoc.Page(string(now), programs)
	if err != nil {
		return err
	}
	return os.WriteFile(metricdoc.File, []byte(page), 0o644)
}
