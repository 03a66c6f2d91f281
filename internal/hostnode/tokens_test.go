package hostnode

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// mint creates tokens that are valid for an hour.
type mint struct {
	source
	now  time.Time
	made int
	next error
}

func (m *mint) requestToken(context.Context, *corev1.Pod, string, *int64) (token, error) {
	if m.next != nil {
		return token{}, m.next
	}
	m.made++
	return token{text: fmt.Sprint("token ", m.made), expiresAt: m.now.Add(time.Hour)}, nil
}

func TestTokens_RenewAfterFourFifthsOfLifetime(t *testing.T) {
	m := &mint{now: noon}
	kept := newTokens(m, func() time.Time { return m.now })
	gone := errors.New("the API server is gone")
	for _, c := range []struct {
		name     string
		after    time.Duration
		audience string
		fails    error
		want     string
	}{
		{"the first token is requested", 0, "", nil, "token 1"},
		{"it is kept after a minute", time.Minute, "", nil, "token 1"},
		{"another audience gets another token", time.Minute, "vault", nil, "token 2"},
		{"it is kept until four fifths of its lifetime", 48*time.Minute - 1, "", nil, "token 1"},
		{"the renewal fails and it is still valid", 48 * time.Minute, "", gone, "token 1"},
		{"it is renewed", 48 * time.Minute, "", nil, "token 3"},
		{"the new token is kept", 90 * time.Minute, "", nil, "token 3"},
		{"the renewal fails and it has expired", 3 * time.Hour, "", gone, ""},
	} {
		m.now, m.next = noon.Add(c.after), c.fails
		got, err := kept.requestToken(t.Context(), nil, c.audience, nil)
		if got.text != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v", c.name, got.text, err)
		}
	}
}
