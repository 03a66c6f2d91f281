package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A session is the caller's own token, in a cookie that scripts cannot read. The console
// keeps none, so that any replica serves any session, also after a restart.
const (
	sessionCookie = "k8s4r-session"
	// csrfHeader must come with a change that a session asks for. Other sites can have a
	// browser send the cookie, but not a header.
	csrfHeader = "X-K8s4r-Csrf"
	// sessionLife bounds a session; the token may end before.
	sessionLife = 24 * time.Hour
	// maxToken is what a browser surely keeps in a cookie.
	maxToken = 3800
)

func bearer(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return strings.TrimSpace(token)
}

func sessionToken(r *http.Request) string {
	c, err := r.Cookie(sessionCookie)
	if err != nil {
		return ""
	}
	return c.Value
}

// cookie of a session. An empty token ends it.
func cookie(r *http.Request, token string) *http.Cookie {
	c := &http.Cookie{
		Name: sessionCookie, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLife.Seconds()),
		// Plaintext is served on loopback alone: to browsers there, or to a proxy that speaks TLS.
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
	if token == "" {
		c.MaxAge = -1
	}
	return c
}

// checkToken refuses what is no token of anybody.
func (s *Server) checkToken(ctx context.Context, token string) error {
	switch {
	case token == "":
		return apierrors.NewBadRequest("token: it is empty")
	case len(token) > maxToken:
		return apierrors.NewBadRequest(fmt.Sprintf("token: it has %d bytes, and a browser keeps %d: send it with each request in the header Authorization instead", len(token), maxToken))
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`",;\`, r) }):
		return apierrors.NewBadRequest("token: it has characters that no token has")
	}
	probe, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	probe.Header.Set("Authorization", "Bearer "+token)
	_, err = s.identify(probe)
	return err
}

// Codes are one-time codes for signing in. The zero value has none.
type Codes struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]code
}

type code struct {
	token func(context.Context) (string, error)
	until time.Time
}

// New makes a code that signs one browser in, with the token that the function makes then.
func (c *Codes) New(token func(context.Context) (string, error), until time.Time) string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // never fails
	text := hex.EncodeToString(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[[sha256.Size]byte]code{}
	}
	c.all[sha256.Sum256([]byte(text))] = code{token, until}
	return text
}

// take uses a code up.
func (c *Codes) take(text string, now time.Time) (code, bool) {
	sum := sha256.Sum256([]byte(text))
	c.mu.Lock()
	defer c.mu.Unlock()
	for have, is := range c.all {
		if subtle.ConstantTimeCompare(have[:], sum[:]) == 1 {
			delete(c.all, have)
			return is, now.Before(is.until)
		}
	}
	return code{}, false
}

// signIn turns a one-time code into a session.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	is, ok := s.codes.take(r.URL.Query().Get("code"), s.now())
	if !ok {
		http.Redirect(w, r, "/signin-failed", http.StatusSeeOther) // the app says what to do
		return
	}
	token, err := is.token(r.Context())
	if err != nil {
		s.log.Error(err, "make a token for who signed in")
		http.Error(w, "signing in failed: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	http.SetCookie(w, cookie(r, token))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
