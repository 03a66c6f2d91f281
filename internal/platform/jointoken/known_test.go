package jointoken

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// countingReader counts the reads of the API server.
type countingReader struct {
	client.Reader
	gets, lists int
}

func (r *countingReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	r.gets++
	return r.Reader.Get(ctx, key, o, opts...)
}

func (r *countingReader) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	r.lists++
	return r.Reader.List(ctx, l, opts...)
}

// An attacker who guesses tokens, from any number of addresses, must not keep the API server busy.
func TestRedeem_UnknownTokensCostOneReadPerSecond(t *testing.T) {
	const seconds = 5
	s, text := bench(t, Token{Uses: 9})
	reads := &countingReader{Reader: s.Live}
	s.Live = reads
	now := noon
	s.Now = func() time.Time { return now }
	if got := s.try(t, text, "r1", "k1"); got != "" || reads.gets != 1 || reads.lists != 1 {
		t.Fatalf("a known token: %q, %d gets, %d lists", got, reads.gets, reads.lists)
	}
	id, _, _ := strings.Cut(text, ".")
	for second := range seconds {
		now = noon.Add(time.Duration(second+1) * time.Second)
		refused := 0
		for i := range 100 {
			guess := fmt.Sprintf("%06d.0123456789abcdef", i)
			if i%2 == 1 { // the right id, as shown in the status of a robot, and a wrong secret
				guess = fmt.Sprintf("%s.%016d", id, i)
			}
			_, err := s.Redeem(t.Context(), guess, "r1", "k1")
			switch {
			case errors.Is(err, ErrUnknown):
				refused++
			case !errors.Is(err, ErrTooSoon):
				t.Fatal(err)
			}
		}
		if refused != 1 {
			t.Errorf("%d of the guesses in one second were looked up", refused)
		}
		if got := s.try(t, text, "r1", "k1"); got != "" {
			t.Errorf("a known token during the attack: %q", got)
		}
	}
	if reads.lists != 1+seconds || reads.gets != 1+seconds {
		t.Errorf("%d lists and %d gets in %d seconds", reads.lists, reads.gets, seconds)
	}
}

// During such an attack, a token that was just created is known a second later.
func TestRedeem_LearnsNewTokensDuringAnAttack(t *testing.T) {
	s, _ := bench(t, Token{Uses: 1})
	now := noon
	s.Now = func() time.Time { return now }
	s.try(t, "zzzzzz.0123456789abcdef", "r1", "k1")
	token, text := NewToken(Token{Uses: 1, Expires: noon.Add(time.Hour), Namespace: "hall"})
	if err := s.Client.Create(t.Context(), token.ToSecret(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Redeem(t.Context(), text, "r1", "k1"); !errors.Is(err, ErrTooSoon) {
		t.Errorf("in the same second: %v", err)
	}
	now = now.Add(listInterval)
	s.try(t, "zzzzzz.0123456789abcdef", "r1", "k1") // takes the list of this second
	if got := s.try(t, text, "r1", "k1"); got != "" {
		t.Errorf("a second later: %q", got)
	}
}

func TestRedeem_ForgetsRevokedTokens(t *testing.T) {
	s, text := bench(t, Token{Uses: 1})
	if got := s.try(t, text, "r1", "k1"); got != "" {
		t.Fatal(got)
	}
	id, _, _ := strings.Cut(text, ".")
	revoked := Token{ID: id}.ToSecret(s.Namespace)
	if err := s.Client.Delete(t.Context(), revoked); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Redeem(t.Context(), text, "r1", "k1"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if _, err := s.Redeem(t.Context(), text, "r1", "k1"); !errors.Is(err, ErrTooSoon) {
		t.Errorf("a revoked token costs more reads: %v", err)
	}
}
