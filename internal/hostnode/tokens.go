package hostnode

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// token is a token of a service account.
type token struct {
	text      string
	expiresAt time.Time
	// renewAt is when another token is requested.
	renewAt time.Time
}

// tokens is a source that caches the tokens of one pod until 80 % of their lifetime, like the
// kubelet. Volumes are refreshed each minute, and each new token costs the API server a signature
// and an audit entry.
type tokens struct {
	source
	now    func() time.Time
	cached map[tokenKey]token
}

// tokenKey identifies a kind of token.
type tokenKey struct {
	audience string
	seconds  int64
}

func newTokens(from source, now func() time.Time) *tokens {
	return &tokens{source: from, now: now, cached: map[tokenKey]token{}}
}

// requestToken returns the cached token until it is due for renewal. If the renewal fails, the
// cached token is returned until it expires.
func (t *tokens) requestToken(ctx context.Context, pod *corev1.Pod, audience string, seconds *int64) (token, error) {
	key := tokenKey{audience: audience}
	if seconds != nil {
		key.seconds = *seconds
	}
	now := t.now()
	kept, has := t.cached[key]
	if has && now.Before(kept.renewAt) {
		return kept, nil
	}
	fresh, err := t.source.requestToken(ctx, pod, audience, seconds)
	if err != nil && has && now.Before(kept.expiresAt) {
		return kept, nil
	}
	if err != nil {
		return token{}, err
	}
	fresh.renewAt = now.Add(fresh.expiresAt.Sub(now) * 8 / 10)
	t.cached[key] = fresh
	return fresh, nil
}
