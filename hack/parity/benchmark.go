package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// runBenchmark suspends and resumes 10,000 workers, and returns the figure that the benchmark prints.
func runBenchmark(stdout, stderr io.Writer) (int, error) {
	var out bytes.Buffer
	if err := runGo([]string{"run", "./test/bench/raycluster", "-resume=10000"}, io.MultiWriter(stdout, &out), stderr); err != nil {
		return 0, err
	}
	return parseResumed(out.Bytes())
}

// parseResumed reads the figure from the last line of the benchmark's output.
func parseResumed(out []byte) (int, error) {
	out = bytes.TrimSpace(out)
	var last struct {
		Resumed *int `json:"workers_10000_resumed"`
	}
	if err := json.Unmarshal(out[bytes.LastIndexByte(out, '\n')+1:], &last); err != nil || last.Resumed == nil {
		return 0, fmt.Errorf("test/bench/raycluster -resume: the last line has no workers_10000_resumed: %w", err)
	}
	return *last.Resumed, nil
}
