package jointoken

import (
	"context"
	"errors"
	"sync"
	"time"
)

// listInterval is the time between two lists of all tokens.
const listInterval = time.Second

// ErrTooSoon means that a token is not known yet, and that the tokens were listed less than a
// second ago. The robot should ask again after a second.
var ErrTooSoon = errors.New("unknown join tokens are looked up at most once a second; try again")

// knownTokens are the tokens of the last list. An attacker who guesses tokens costs one list a
// second, and learns nothing from the time of the answer: a wrong secret is looked up like an
// unknown id.
type knownTokens struct {
	mu     sync.Mutex
	byID   map[string]Token
	listAt time.Time // of the next list
}

// has reports whether a token with this secret is known.
func (k *knownTokens) has(id, secret string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.byID[id]
	return ok && t.matchesSecret(secret)
}

func (k *knownTokens) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byID, id)
}

// reserveList reports whether the tokens may be listed now.
func (k *knownTokens) reserveList(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Before(k.listAt) {
		return false
	}
	k.listAt = now.Add(listInterval)
	return true
}

func (k *knownTokens) replace(all map[string]Token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byID = all
}

// checkKnown returns nil if there is such a token, after at most one list.
func (s *Store) checkKnown(ctx context.Context, id, secret string) error {
	if s.known.has(id, secret) {
		return nil
	}
	if !s.known.reserveList(s.Now()) {
		return ErrTooSoon
	}
	all, err := s.listKnown(ctx)
	if err != nil {
		return err
	}
	s.known.replace(all)
	if !s.known.has(id, secret) {
		return &RefusedError{ErrUnknown}
	}
	return nil
}

// listKnown returns all tokens by their ids, without Secrets that are damaged.
func (s *Store) listKnown(ctx context.Context) (map[string]Token, error) {
	list, err := listSecrets(ctx, s.Live, s.Namespace)
	if err != nil {
		return nil, err
	}
	all := map[string]Token{}
	for i := range list.Items {
		if t, err := FromSecret(&list.Items[i]); err == nil {
			t.Used = nil // up to a thousand, read again for each request
			all[t.ID] = t
		}
	}
	return all, nil
}
