package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// MaxPayload bounds a message, in bytes, both ways.
const MaxPayload = 256 << 10

// The bounds of what a robot may say about one attempt. Longer text is cut,
// not refused, because the report's state matters more than its prose.
const (
	maxMessage = 4 << 10
	maxWord    = 256
	maxOutput  = 4 << 10
)

// MaxOutputs bounds the values that one task hands on.
const MaxOutputs = 64

// ErrTooLarge refuses a payload beyond MaxPayload.
var ErrTooLarge = errors.New("message is larger than 256 KiB")

// Encode writes a message. It fails only when the result would be too large.
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

// Decode reads a message. Unknown fields are passed over, so that either side
// may be newer. A payload that is too large or no JSON is an error; it never
// panics.
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

// Bounded cuts what a robot said to sizes that fit a Task object.
func (s Status) Bounded() Status {
	s.Message = Cut(s.Message, maxMessage)
	s.Event, s.Reason = Cut(s.Event, maxWord), Cut(s.Reason, maxWord)
	if len(s.Outputs) == 0 {
		return s
	}
	kept := make(map[string]string, min(len(s.Outputs), MaxOutputs))
	for k, v := range s.Outputs {
		if len(kept) == MaxOutputs {
			break
		}
		kept[Cut(k, maxWord)] = Cut(v, maxOutput)
	}
	s.Outputs = kept
	return s
}

// Cut shortens s to n bytes at the most, at the border of a character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
