// Package jointoken is the tokens by which new robots join: a public id and a
// secret, and what may be done with them. Each is a Secret in the namespace of
// the server, which holds only a salted hash of the secret.
package jointoken

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Type of the Secrets.
const Type = "k8s4r.io/join-token"

// MaxUses bounds how often a token may serve: who has used it stands in its
// Secret, which may not grow beyond what the API server takes.
const MaxUses = 1000

const (
	idLength     = 6
	secretLength = 16
	alphabet     = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// Token is what may be done with a token, and what was.
type Token struct {
	ID string
	// Expires is when it ends to count.
	Expires time.Time
	// Uses is how many keys it may let in, from 1 to MaxUses.
	Uses int
	// Quota is how many robots it may let in: fewer than Uses leaves room for
	// some of them to come again with another key. Zero: as many as Uses.
	Quota int
	// Robots is a pattern of the ids that it is for, such as "rover-*". Empty:
	// any.
	Robots string
	// Labels that its robots get. They cannot change them.
	Labels map[string]string
	// Namespace that its robots are created in.
	Namespace string
	// Used are those who came, oldest first.
	Used []Use

	salt, hash []byte
}

// Use is one key that a token has let in.
type Use struct {
	Robot string `json:"robot"`
	Key   string `json:"key"` // fingerprint
}

// ErrUnknown refuses a token. It does not tell whether the id or the secret is
// wrong: who guesses has no need to know.
var ErrUnknown = errors.New("this join token is not known here, or its secret is wrong; make one by `k8s4r token create`")

// Parse takes a token apart: abcdef.0123456789abcdef.
func Parse(text string) (id, secret string, err error) {
	id, secret, ok := strings.Cut(text, ".")
	if !ok || !isWord(id, idLength) || !isWord(secret, secretLength) {
		return "", "", errors.New("a join token is 6 letters or digits, a dot and 16 more, all of a-z and 0-9")
	}
	return id, secret, nil
}

func isWord(s string, length int) bool {
	return len(s) == length && strings.Trim(s, alphabet) == ""
}

// New makes a token with these rights. What it returns as text is the only
// copy of the secret.
func New(rights Token) (Token, string) {
	secret := random(secretLength)
	rights.ID, rights.salt = random(idLength), []byte(random(secretLength))
	rights.hash = hashOf(rights.salt, secret)
	return rights, rights.ID + "." + secret
}

func random(length int) string {
	// Letters beyond the last whole round of the alphabet would come more often.
	limit := byte(256 / len(alphabet) * len(alphabet))
	var out, b []byte = nil, make([]byte, 1)
	for len(out) < length {
		if _, _ = rand.Read(b); b[0] < limit { // never fails
			out = append(out, alphabet[int(b[0])%len(alphabet)])
		}
	}
	return string(out)
}

func hashOf(salt []byte, secret string) []byte {
	sum := sha256.Sum256(append(slices.Clone(salt), secret...))
	return sum[:]
}

// Validate refuses rights that make no sense, by a sentence that names the
// flag of `token create`.
func (t Token) Validate(now time.Time) error {
	_, bad := path.Match(t.Robots, "x")
	return errors.Join(
		check(t.Expires.After(now), "--expires: must be more than nothing"),
		check(t.Uses >= 1 && t.Uses <= MaxUses, "--uses=%d: must be from 1 to %d", t.Uses, MaxUses),
		check(t.Quota >= 0 && t.Quota <= t.Uses, "--quota=%d: must be from 0 to --uses=%d", t.Quota, t.Uses),
		check(bad == nil, "--robots=%s: must be a pattern such as rover-*", t.Robots),
		check(t.Namespace != "", "--namespace: is empty"),
	)
}

func check(ok bool, format string, a ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, a...)
}

// knows compares the secret in constant time.
func (t Token) knows(secret string) bool {
	return subtle.ConstantTimeCompare(t.hash, hashOf(t.salt, secret)) == 1
}

// Expired tells whether it has ended to count.
func (t Token) Expired(now time.Time) bool { return !now.Before(t.Expires) }

// admit says whether the token lets a robot in with a key. news tells that it
// has not done so before: then the use is noted in t, and is to be written.
func (t *Token) admit(now time.Time, robot, key string) (news bool, err error) {
	fits, _ := path.Match(t.Robots, robot) // Validate has seen the pattern
	use := Use{Robot: robot, Key: key}
	switch {
	case t.Expired(now):
		return false, fmt.Errorf("join token %s has expired at %s; make another by `k8s4r token create`", t.ID, t.Expires.UTC().Format(time.RFC3339))
	case t.Robots != "" && !fits:
		return false, fmt.Errorf("join token %s is for robots whose id fits %s, and %s does not", t.ID, t.Robots, robot)
	case slices.Contains(t.Used, use):
		return false, nil // it asks again, or lost our answer
	case len(t.Used) >= t.Uses:
		return false, fmt.Errorf("join token %s is used up: it was for %d; make another by `k8s4r token create`", t.ID, t.Uses)
	case t.Quota > 0 && !t.served(robot) && t.robots() >= t.Quota:
		return false, fmt.Errorf("join token %s has let in as many robots as it may, %d; make another by `k8s4r token create`", t.ID, t.Quota)
	}
	t.Used = append(t.Used, use)
	return true, nil
}

func (t *Token) served(robot string) bool {
	return slices.ContainsFunc(t.Used, func(u Use) bool { return u.Robot == robot })
}

// robots is how many different ones it has let in.
func (t *Token) robots() int {
	names := map[string]bool{}
	for _, u := range t.Used {
		names[u.Robot] = true
	}
	return len(names)
}
