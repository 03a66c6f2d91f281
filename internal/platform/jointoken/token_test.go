package jointoken

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/internal/testkit/fakeapi"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// bench is a namespace with one token.
func bench(t *testing.T, rights Token) (*Store, string) {
	t.Helper()
	if rights.Expires.IsZero() {
		rights.Expires = noon.Add(time.Hour)
	}
	rights.Namespace = "hall"
	if err := rights.Validate(noon); err != nil {
		t.Fatal(err)
	}
	token, text := NewToken(rights)
	c := fakeapi.NewBuilder(clientgoscheme.Scheme).WithObjects(token.ToSecret("k8s4r-system")).
		WithIndex(&corev1.Secret{}, "type", func(o client.Object) []string { return []string{string(o.(*corev1.Secret).Type)} }).Build()
	return &Store{Client: c, Live: c, Namespace: "k8s4r-system", Now: func() time.Time { return noon }}, text
}

func (s *Store) try(t *testing.T, text, robot, key string) string {
	t.Helper()
	_, err := s.Redeem(t.Context(), text, robot, key)
	if errors.Is(err, ErrTooSoon) { // as robots do
		later := s.Now().Add(listInterval)
		s.Now = func() time.Time { return later }
		_, err = s.Redeem(t.Context(), text, robot, key)
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	return ""
}

func TestRedeem_EnforcesTheRights(t *testing.T) {
	s, text := bench(t, Token{Uses: 3, Quota: 2, Robots: "rover-*", Labels: map[string]string{"site": "a"}})
	for _, step := range []struct{ robot, key, want string }{
		{"arm-1", "k1", "matches rover-*"},
		{"rover-1", "k1", ""},
		{"rover-1", "k1", ""}, // again: costs nothing
		{"rover-2", "k2", ""},
		{"rover-3", "k3", "has admitted 2 robots"},
		{"rover-1", "k4", ""}, // the same robot with another key
		{"rover-2", "k5", "used up"},
		{"rover-1", "k4", ""},
	} {
		got := s.try(t, text, step.robot, step.key)
		if (got == "") != (step.want == "") || !strings.Contains(got, step.want) {
			t.Errorf("%+v: %q", step, got)
		}
	}
	got, err := s.Redeem(t.Context(), text, "rover-1", "k1")
	if err != nil || got.Namespace != "hall" || got.Labels["site"] != "a" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCheckUsed_HoldsAfterTheTokenExpired(t *testing.T) {
	s, text := bench(t, Token{Uses: 1})
	if s.try(t, text, "r1", "k1") != "" {
		t.Fatal("it is not let in")
	}
	s.Now = func() time.Time { return noon.Add(48 * time.Hour) }
	if err := s.CheckUsed(t.Context(), text, "r1", "k1"); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"r2", ""} {
		if err := s.CheckUsed(t.Context(), text, other, "k1"); err == nil {
			t.Errorf("%q is known", other)
		}
	}
	if err := s.CheckUsed(t.Context(), "zzzzzz.0123456789abcdef", "r1", "k1"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

func TestRedeem_WrongTokensGetTheSameError(t *testing.T) {
	s, text := bench(t, Token{Uses: 1, Expires: noon.Add(time.Minute)})
	id, _, _ := strings.Cut(text, ".")
	unknown := s.try(t, "zzzzzz.0123456789abcdef", "r1", "k1")
	wrong := s.try(t, id+".0123456789abcdef", "r1", "k1")
	if unknown == "" || unknown != wrong {
		t.Errorf("the messages %q and %q reveal whether the id or the secret is wrong", unknown, wrong)
	}
	s.Now = func() time.Time { return noon.Add(time.Hour) }
	if got := s.try(t, id+".0123456789abcdef", "r1", "k1"); got != wrong {
		t.Errorf("%q", got)
	}
	if got := s.try(t, text, "r1", "k1"); !strings.Contains(got, "expired at 2026-11-22T12:01:00Z") {
		t.Errorf("%q", got)
	}
}

func TestToSecret_HoldsOnlyAHash(t *testing.T) {
	token, text := NewToken(Token{Uses: 1, Expires: noon, Namespace: "hall"})
	_, secret, _ := strings.Cut(text, ".")
	for k, v := range token.ToSecret("x").Data {
		if strings.Contains(string(v), secret) {
			t.Errorf("%s holds it", k)
		}
	}
	other, _ := NewToken(token)
	if string(other.hash) == string(token.hash) || string(other.salt) == string(token.salt) {
		t.Error("no salt of its own")
	}
}

// TestRedeem_ConcurrentRobots: no use is lost, and none is given twice.
func TestRedeem_ConcurrentRobots(t *testing.T) {
	s, text := bench(t, Token{Uses: 4})
	if id, secret, _ := ParseToken(text); s.checkKnown(t.Context(), id, secret) != nil {
		t.Fatal("the token is unknown")
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	in := 0
	for _, robot := range []string{"r1", "r2", "r3", "r4", "r5", "r6"} {
		wg.Go(func() {
			_, err := s.Redeem(context.Background(), text, robot, "k")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				in++
			}
		})
	}
	wg.Wait()
	if in != 4 {
		t.Errorf("%d came in", in)
	}
	tokens, err := ListTokens(t.Context(), typed{s.Client}, "k8s4r-system")
	if err != nil || len(tokens) != 1 || len(tokens[0].Used) != 4 {
		t.Errorf("%+v, %v", tokens, err)
	}
}

// typed lists without the field selector, for which the fake client has no index.
type typed struct{ client.Reader }

func (c typed) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return c.Reader.List(ctx, list)
}

func TestValidate_NamesTheFlag(t *testing.T) {
	good := Token{Uses: 1, Expires: noon.Add(time.Hour), Namespace: "x"}
	for flag, change := range map[string]func(*Token){
		"--uses": func(t *Token) { t.Uses = MaxUses + 1 }, "--max-robots": func(t *Token) { t.Quota = 2 }, "--robots": func(t *Token) { t.Robots = "[" },
		"--ttl": func(t *Token) { t.Expires = noon }, "--namespace": func(t *Token) { t.Namespace = "" },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(noon); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("abcdef.0123456789abcdef")
	f.Add("abcdef")
	f.Add(".")
	f.Fuzz(func(t *testing.T, text string) {
		id, secret, err := ParseToken(text)
		if err == nil && id+"."+secret != text {
			t.Errorf("%q is not what was read: %q %q", text, id, secret)
		}
	})
}
