// Package traceparent names the trace of a task and the spans in it, in the words of W3C Trace
// Context. All ids follow from the Task's UID and the number of an attempt, so whoever knows
// those two goes on in the same trace: a program that was started anew, a server that took over
// from another, and one whose robot speaks a protocol that carries no context.
package traceparent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Property is the user property of MQTT 5 that carries a Context.
const Property = "traceparent"

// Run is the name of the span of what runs, below its dispatch.
const Run = "run"

// Env is the variable of a task's environment that does.
const Env = "TRACEPARENT"

// Context is a place in a trace.
type Context struct {
	Trace [16]byte
	Span  [8]byte
	// Sampled: the spans of this trace are kept.
	Sampled bool
}

// OfTask is the whole life of a task. The trace is its UID without the hyphens, so that people
// find it; the right half of a UID is as random as the standard wants.
func OfTask(uid string) Context {
	c := Context{Trace: traceOf(uid)}
	c.Span = spanOf(c.Trace[:], "task")
	return c
}

// OfAttempt is the dispatch of an attempt.
func OfAttempt(uid string, attempt int32) Context {
	c := Context{Trace: traceOf(uid)}
	c.Span = spanOf(binary.BigEndian.AppendUint32(c.Trace[:], uint32(attempt)), "dispatch")
	return c
}

// Child is a span of that name below this one. The same name is the same span.
func (c Context) Child(name string) Context {
	c.Span = spanOf(append(c.Trace[:], c.Span[:]...), name)
	return c
}

func traceOf(uid string) (id [16]byte) {
	if bytes, err := hex.DecodeString(strings.ReplaceAll(uid, "-", "")); err == nil && len(bytes) == len(id) && len(uid) == 36 {
		return [16]byte(bytes)
	}
	sum := sha256.Sum256([]byte(uid)) // of an object that no API server has named
	return [16]byte(sum[:])
}

func spanOf(of []byte, name string) [8]byte {
	h := sha256.New()
	h.Write(of)
	h.Write([]byte(name))
	return [8]byte(h.Sum(nil))
}

// Kept tells whether a trace is among the share that is kept, which is between 0 and 1. It
// reads the 56 bits that the standard has at random, so that all programs decide alike.
func (c Context) Kept(share float64) bool {
	const all = 1 << 56
	random := binary.BigEndian.Uint64(c.Trace[8:]) & (all - 1)
	return float64(random) < share*all
}

// String is the value of the header traceparent.
func (c Context) String() string {
	flags := 0
	if c.Sampled {
		flags = 1
	}
	return fmt.Sprintf("00-%x-%x-%02x", c.Trace, c.Span, flags)
}

// Parse reads what String wrote, or what a later version of the standard did.
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
