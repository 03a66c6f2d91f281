package hostnode

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// mint makes tokens that live for an hour.
type mint struct {
	source
	now  time.Time
	made int
	next error
}

func (m *mint) token(context.Context, *corev1.Pod, string, *int64) (token, error) {
	if m.next != nil {
		return token{}, m.next
	}
	m.made++
	return token{text: fmt.Sprint("token ", m.made), until: m.now.Add(time.Hour)}, nil
}

func TestATokenIsKeptForFourFifthsOfItsLife(t *testing.T) {
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
		{"the first is asked for", 0, "", nil, "token 1"},
		{"a minute later it is the same", time.Minute, "", nil, "token 1"},
		{"for another audience there is another", time.Minute, "vault", nil, "token 2"},
		{"right before four fifths of its life it is the same", 48*time.Minute - 1, "", nil, "token 1"},
		{"nobody gives another, and it still lives", 48 * time.Minute, "", gone, "token 1"},
		{"then it is renewed", 48 * time.Minute, "", nil, "token 3"},
		{"and that is kept", 90 * time.Minute, "", nil, "token 3"},
		{"nobody gives another, and it has ended", 3 * time.Hour, "", gone, ""},
	} {
		m.now, m.next = noon.Add(c.after), c.fails
		got, err := kept.token(t.Context(), nil, c.audience, nil)
		if got.text != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v", c.name, got.text, err)
		}
	}
}
