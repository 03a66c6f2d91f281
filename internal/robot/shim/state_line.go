package shim

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
)

// appendLine appends the line of the state file that encoding/json makes of a stateLine. Most shims
// write three lines, for which that package would first have to examine the types.
func appendLine(b []byte, s State) []byte {
	b = strconv.AppendInt(append(b, `{"v":`...), StateFormat, 10)
	if s.Shim != nil {
		b = append(appendProcess(append(b, `,"shim":{`...), *s.Shim), '}')
	}
	if s.MayHaveStarted {
		b = append(b, `,"mayHaveStarted":true`...)
	}
	if s.Started != nil {
		b = appendProcess(append(b, `,"started":{`...), s.Started.Process)
		b = append(appendTime(append(b, `,"at":`...), s.Started.At), '}')
	}
	if s.Exit != nil {
		b = append(appendExit(append(b, `,"exit":{`...), *s.Exit), '}')
	}
	return append(b, "}\n"...)
}

func appendProcess(b []byte, p Process) []byte {
	b = strconv.AppendInt(append(b, `"pid":`...), int64(p.PID), 10)
	return strconv.AppendUint(append(b, `,"startTicks":`...), p.StartTicks, 10)
}

func appendTime(b []byte, at time.Time) []byte {
	return append(at.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

func appendExit(b []byte, e Exit) []byte {
	b = strconv.AppendInt(append(b, `"code":`...), int64(e.Code), 10)
	b = appendNumber(b, "signal", int64(e.Signal))
	b = appendText(b, "stopReason", e.StopReason)
	b = appendTrue(b, "killed", e.Killed)
	b = appendText(b, "error", e.Error)
	b = appendTrue(b, "commandNotFound", e.CommandNotFound)
	b = appendTime(append(b, `,"at":`...), e.At)
	b = appendNumber(b, "cpu", int64(e.CPU))
	b = appendNumber(b, "memoryPeak", e.MemoryPeak)
	if len(e.Outputs) == 0 {
		return b
	}
	b = append(b, `,"outputs":{`...)
	for i, name := range slices.Sorted(maps.Keys(e.Outputs)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quoteJSON(name)...), ':')
		b = append(b, quoteJSON(e.Outputs[name])...)
	}
	return append(b, '}')
}

// appendNumber appends a field unless it is zero.
func appendNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, `,"`+name+`":`...), n, 10)
}

// appendTrue appends a field unless it is false.
func appendTrue(b []byte, name string, on bool) []byte {
	if !on {
		return b
	}
	return append(b, `,"`+name+`":true`...)
}

// appendText appends a field unless it is empty.
func appendText(b []byte, name, text string) []byte {
	if text == "" {
		return b
	}
	return append(append(b, `,"`+name+`":`...), quoteJSON(text)...)
}

func quoteJSON(s string) []byte {
	b, _ := json.Marshal(s) // a string has no error
	return b
}
