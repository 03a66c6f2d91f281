package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxPayload bounds a message in either direction, in bytes.
const MaxPayload = 256 << 10

// The bounds of a report about one attempt, in bytes. Longer text is truncated, not rejected,
// because the state matters more than the text.
const (
	maxMessage = 4 << 10
	maxToken   = 256
	maxOutput  = 4 << 10
)

// MaxOutputs bounds the number of outputs of one task.
const MaxOutputs = 64

// ErrTooLarge is returned for a payload larger than MaxPayload.
var ErrTooLarge = errors.New("message is larger than 256 KiB")

// Encode encodes a message. It returns ErrTooLarge if the result is too large.
func Encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	if len(b) > MaxPayload {
		return nil, ErrTooLarge
	}
	return b, nil
}

// Decode decodes a message. It ignores unknown fields, so that either side may be newer.
func Decode[T any](payload []byte) (T, error) {
	var v T
	if len(payload) > MaxPayload {
		return v, ErrTooLarge
	}
	if err := json.Unmarshal(payload, &v); err != nil {
		return v, fmt.Errorf("decode message: %w", err)
	}
	return v, nil
}

// WithinLimits returns the report with texts, runs and outputs truncated to sizes that fit a Task
// object.
func (s Status) WithinLimits() Status {
	s = s.boundRuns()
	s.Message = TruncateText(s.Message, maxMessage)
	s.Event, s.Reason, s.Refused = TruncateText(s.Event, maxToken), TruncateText(s.Reason, maxToken), TruncateText(s.Refused, maxToken)
	if s.Array != nil {
		s.Array = new(s.Array.WithinLimits())
	}
	if len(s.Outputs) == 0 {
		return s
	}
	kept := make(map[string]string, min(len(s.Outputs), MaxOutputs))
	for k, v := range s.Outputs {
		if len(kept) == MaxOutputs {
			break
		}
		kept[TruncateText(k, maxToken)] = TruncateText(v, maxOutput)
	}
	s.Outputs = kept
	return s
}

// TruncateText truncates s to at most n bytes, at a character boundary. The result is a copy, so that it does
// not keep the rest of a long text in memory.
func TruncateText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}
