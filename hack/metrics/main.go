// Command metrics writes the tables of docs/reference/metrics.md from the metrics that the programs
// register. Its tests hold the names, labels and help texts of all metrics to one scheme,
// and the dashboards and alerts to the metrics that exist.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := writePage(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writePage() error {
	programs, err := listPrograms()
	if err != nil {
		return err
	}
	now, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	page, err := renderPage(string(now), programs)
	if err != nil {
		return err
	}
	return os.WriteFile(pageFile, []byte(page), 0o644)
}
