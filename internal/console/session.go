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

// A session is the caller's own token in a cookie that scripts cannot read. The console stores no
// sessions, so that they are valid in all replicas and after a restart.
const (
	sessionCookie = "k8s4r-session"
	// csrfHeader is required for changes in a session. Other sites can make a browser send the
	// cookie, but not this header.
	csrfHeader = "X-K8s4r-Csrf"
	// sessionLife bounds a session; its token may expire earlier.
	sessionLife = 24 * time.Hour
	// maxToken is the length in bytes of a token that all browsers store in a cookie.
	maxToken = 3800
)

func bearerToken(r *http.Request) string {
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

// newSessionCookie returns the cookie of a session. An empty token deletes the cookie.
func newSessionCookie(r *http.Request, token string) *http.Cookie {
	c := &http.Cookie{
		Name: sessionCookie, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLife.Seconds()),
		// Plaintext connections come from this machine: from a browser, or from a proxy that
		// terminates TLS.
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https",
	}
	if token == "" {
		c.MaxAge = -1
	}
	return c
}

// checkToken returns an error unless the token authenticates a user and fits a cookie.
func (s *Server) checkToken(ctx context.Context, token string) error {
	switch {
	case token == "":
		return apierrors.NewBadRequest("token: must not be empty")
	case len(token) > maxToken:
		return apierrors.NewBadRequest(fmt.Sprintf("token: has %d bytes, but a cookie is limited to %d: send it in the header Authorization of each request instead", len(token), maxToken))
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`",;\`, r) }):
		return apierrors.NewBadRequest("token: contains characters that are not allowed in a token")
	}
	probe, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	probe.Header.Set("Authorization", "Bearer "+token)
	_, err = s.identifyCaller(probe)
	return err
}

// Codes holds one-time codes for signing in. The zero value is empty and ready to use.
type Codes struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]code
}

type code struct {
	token func(context.Context) (string, error)
	until time.Time
}

// NewCode creates a code that is valid until the given time and signs in one browser. token
// creates the token when the code is used.
func (c *Codes) NewCode(token func(context.Context) (string, error), until time.Time) string {
	raw := make([]byte, 16)
	_, _ = rand.Read(raw) // crypto/rand.Read never fails
	text := hex.EncodeToString(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[[sha256.Size]byte]code{}
	}
	c.all[sha256.Sum256([]byte(text))] = code{token, until}
	return text
}

// takeCode removes a code and reports whether it was valid at now.
func (c *Codes) takeCode(text string, now time.Time) (code, bool) {
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

// signIn exchanges a one-time code for a session.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	is, ok := s.codes.takeCode(r.URL.Query().Get("code"), s.now())
	if !ok {
		http.Redirect(w, r, "/signin-failed", http.StatusSeeOther) // a page of the app with instructions
		return
	}
	token, err := is.token(r.Context())
	if err != nil {
		s.log.Error(err, "Cannot create a token for the user")
		http.Error(w, "sign-in failed: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	http.SetCookie(w, newSessionCookie(r, token))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
