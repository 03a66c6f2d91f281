// Package trace names the trace of a task and its spans in the form of W3C Trace Context. All ids
// are derived from the Task's UID and the number of the attempt, so every program that knows both
// continues the same trace without stored state: after a restart, after a change of the leading
// server, and for legacy agents.
package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Property is the MQTT 5 user property that carries a Context.
const Property = "traceparent"

// RunSpan is the name of the span of a run, below its dispatch.
const RunSpan = "run"

// Env is the environment variable that carries a Context to a task.
const Env = "TRACEPARENT"

// Context is a position in a trace.
type Context struct {
	Trace [16]byte
	Span  [8]byte
	// Sampled is set if the spans of this trace are exported.
	Sampled bool
}

// TaskContext returns the span of the task. The id of the trace is the UID without hyphens, so
// that people find it.
func TaskContext(uid string) Context {
	c := Context{Trace: traceID(uid)}
	c.Span = spanID(c.Trace[:], "task")
	return c
}

// AttemptContext returns the span of the dispatch of an attempt.
func AttemptContext(uid string, attempt int32) Context {
	c := Context{Trace: traceID(uid)}
	c.Span = spanID(binary.BigEndian.AppendUint32(c.Trace[:], uint32(attempt)), "dispatch")
	return c
}

// ChildSpan returns the span with this name below c. The same name is the same span.
func (c Context) ChildSpan(name string) Context {
	c.Span = spanID(append(c.Trace[:], c.Span[:]...), name)
	return c
}

func traceID(uid string) (id [16]byte) {
	if bytes, err := hex.DecodeString(strings.ReplaceAll(uid, "-", "")); err == nil && len(bytes) == len(id) && len(uid) == 36 {
		return [16]byte(bytes)
	}
	sum := sha256.Sum256([]byte(uid)) // a UID that is not a UUID
	return [16]byte(sum[:])
}

func spanID(of []byte, name string) [8]byte {
	h := sha256.New()
	h.Write(of)
	h.Write([]byte(name))
	return [8]byte(h.Sum(nil))
}

// IsSampled reports whether the trace belongs to the given share, from 0 to 1. It uses the 56
// bits that the standard defines as random, so that all programs decide the same.
func (c Context) IsSampled(share float64) bool {
	const all = 1 << 56
	random := binary.BigEndian.Uint64(c.Trace[8:]) & (all - 1)
	return float64(random) < share*all
}

// String returns the value of the traceparent header.
func (c Context) String() string {
	flags := 0
	if c.Sampled {
		flags = 1
	}
	return fmt.Sprintf("00-%x-%x-%02x", c.Trace, c.Span, flags)
}

// Parse parses a traceparent header of this or a later version of the standard.
func Parse(s string) (c Context, ok bool) {
	part := strings.Split(s, "-")
	if len(part) < 4 || len(part[0]) != 2 || part[0] == "ff" || part[0] == "00" && len(part) > 4 || len(part[3]) != 2 {
		return Context{}, false
	}
	var version, flags [1]byte
	for i, to := range [][]byte{version[:], c.Trace[:], c.Span[:], flags[:]} {
		if len(part[i]) != 2*len(to) || strings.ToLower(part[i]) != part[i] {
			return Context{}, false
		}
		if _, err := hex.Decode(to, []byte(part[i])); err != nil {
			return Context{}, false
		}
	}
	c.Sampled = flags[0]&1 == 1
	if c.Trace == [16]byte{} || c.Span == [8]byte{} {
		return Context{}, false
	}
	return c, true
}
