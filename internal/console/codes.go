package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"sync"
	"time"
)

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
