package hostnode

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// token of a service account.
type token struct {
	text  string
	until time.Time
	// renewAt is when it has lived so long that another one is asked for.
	renewAt time.Time
}

// tokens is a source that keeps the tokens of one pod until 80 % of their lives have
// passed, as a kubelet does: files of volumes are looked at each minute, and each new
// token costs the API server a signature and a line in its audit.
type tokens struct {
	source
	now  func() time.Time
	kept map[tokenKey]token
}

// tokenKey is what pods ask of a token.
type tokenKey struct {
	audience string
	seconds  int64
}

func newTokens(from source, now func() time.Time) *tokens {
	return &tokens{source: from, now: now, kept: map[tokenKey]token{}}
}

// token returns the one that is kept, also when it is due and there is no other yet.
func (t *tokens) token(ctx context.Context, pod *corev1.Pod, audience string, seconds *int64) (token, error) {
	key := tokenKey{audience: audience}
	if seconds != nil {
		key.seconds = *seconds
	}
	now := t.now()
	kept, has := t.kept[key]
	if has && now.Before(kept.renewAt) {
		return kept, nil
	}
	fresh, err := t.source.token(ctx, pod, audience, seconds)
	if err != nil && has && now.Before(kept.until) {
		return kept, nil
	}
	if err != nil {
		return token{}, err
	}
	fresh.renewAt = now.Add(fresh.until.Sub(now) * 8 / 10)
	t.kept[key] = fresh
	return fresh, nil
}
