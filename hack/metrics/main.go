// Command metrics writes the tables of docs/metrics.md from the metrics that the programs
// register, and copies dashboards and rules into the chart, which reads no file outside of it.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s4r.io/k8s4r/internal/metricdoc"
)

func main() {
	if err := errors.Join(write(), copyMonitoring()); err != nil {
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

func copyMonitoring() error {
	const from, to = "config/monitoring", "charts/k8s4r/files/monitoring"
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
