// Package jointoken implements the tokens with which new robots join: a public id, a secret, and
// its rights. Each is a Secret in the namespace of the server that holds only a salted hash of
// the secret.
package jointoken

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Type of the Secrets.
const Type = "k8s4r.io/join-token"

// MaxUses bounds the uses of a token: all are listed in its Secret, whose size is limited.
const MaxUses = 1000

// MaxLabels bounds the labels of a token, as spec.labels of a Robot does.
const MaxLabels = 64

const (
	idLength     = 6
	secretLength = 16
	alphabet     = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// Token holds the rights of a token, and its uses.
type Token struct {
	ID string
	// Expires is when it stops being valid.
	Expires time.Time
	// Uses is the number of keys that it may admit, from 1 to MaxUses.
	Uses int
	// Quota is the number of robots that it may admit: less than Uses lets some of them join
	// again with another key. Zero: as many as Uses.
	Quota int
	// Robots is a pattern of robot ids, such as "rover-*". Empty: any.
	Robots string
	// Labels that its robots get and cannot change.
	Labels map[string]string
	// Namespace that its robots are created in.
	Namespace string
	// Used lists its uses, oldest first.
	Used []Use

	salt, hash []byte
}

// Use is one key that a token has admitted.
type Use struct {
	Robot string `json:"robot"`
	Key   string `json:"key"` // fingerprint
}

// ErrUnknown rejects a token. It is the same for a wrong id and a wrong secret, so that it does
// not help to guess.
var ErrUnknown = errors.New("unknown join token, or wrong secret; create one with `k8s4r token create`")

// ParseToken splits a token such as abcdef.0123456789abcdef.
func ParseToken(text string) (id, secret string, err error) {
	id, secret, ok := strings.Cut(text, ".")
	if !ok || !isWord(id, idLength) || !isWord(secret, secretLength) {
		return "", "", errors.New("a join token consists of 6 characters, a dot and 16 characters, each of a-z and 0-9")
	}
	return id, secret, nil
}

func isWord(s string, length int) bool {
	return len(s) == length && strings.Trim(s, alphabet) == ""
}

// NewToken returns a token with these rights and its text, which is the only copy of the secret.
func NewToken(rights Token) (Token, string) {
	secret := randomText(secretLength)
	rights.ID, rights.salt = randomText(idLength), []byte(randomText(secretLength))
	rights.hash = hashOf(rights.salt, secret)
	return rights, rights.ID + "." + secret
}

func randomText(length int) string {
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

// Validate returns an error that names the flag of `token create` for each invalid field.
func (t Token) Validate(now time.Time) error {
	_, bad := path.Match(t.Robots, "x")
	return errors.Join(
		checkThat(t.Expires.After(now), "--ttl: must be positive"),
		checkThat(t.Uses >= 1 && t.Uses <= MaxUses, "--uses=%d: must be from 1 to %d", t.Uses, MaxUses),
		checkThat(t.Quota >= 0 && t.Quota <= t.Uses, "--max-robots=%d: must be from 0 to --uses=%d", t.Quota, t.Uses),
		checkThat(bad == nil, "--robots=%s: must be a pattern such as rover-*", t.Robots),
		checkThat(t.Namespace != "", "--namespace: must be set"),
		wrapFlag("--labels", t.validateLabels()),
	)
}

// validateLabels returns an error if a Robot cannot have the labels.
func (t Token) validateLabels() error {
	if len(t.Labels) > MaxLabels {
		return fmt.Errorf("%d are given; at most %d are allowed", len(t.Labels), MaxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		if err := wire.ValidateLabel(name, t.Labels[name]); err != nil {
			return err
		}
	}
	return nil
}

func wrapFlag(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}

func checkThat(ok bool, format string, a ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, a...)
}

// matchesSecret compares in constant time.
func (t Token) matchesSecret(secret string) bool {
	return subtle.ConstantTimeCompare(t.hash, hashOf(t.salt, secret)) == 1
}

// IsExpired reports whether the token is no longer valid.
func (t Token) IsExpired(now time.Time) bool { return !now.Before(t.Expires) }

// admitRobot returns an error if the token does not admit a robot with this key. If isNew, the
// use was added to t and must be written.
func (t *Token) admitRobot(now time.Time, robot, key string) (isNew bool, err error) {
	fits, _ := path.Match(t.Robots, robot) // Validate has seen the pattern
	use := Use{Robot: robot, Key: key}
	labels := t.validateLabels()
	switch {
	case t.IsExpired(now):
		return false, fmt.Errorf("join token %s expired at %s; create another with `k8s4r token create`", t.ID, t.Expires.UTC().Format(time.RFC3339))
	case t.Robots != "" && !fits:
		return false, fmt.Errorf("join token %s admits robots whose id matches %s, not %s", t.ID, t.Robots, robot)
	case slices.Contains(t.Used, use):
		return false, nil // it asks again, perhaps because our answer was lost
	case labels != nil:
		return false, fmt.Errorf("join token %s: %w; create another with `k8s4r token create`", t.ID, labels)
	case len(t.Used) >= t.Uses:
		return false, fmt.Errorf("join token %s is used up: it allows %d uses; create another with `k8s4r token create`", t.ID, t.Uses)
	case t.Quota > 0 && !t.hasAdmitted(robot) && t.robotCount() >= t.Quota:
		return false, fmt.Errorf("join token %s has admitted %d robots, which is all it allows; create another with `k8s4r token create`", t.ID, t.Quota)
	}
	t.Used = append(t.Used, use)
	return true, nil
}

func (t *Token) hasAdmitted(robot string) bool {
	return slices.ContainsFunc(t.Used, func(u Use) bool { return u.Robot == robot })
}

// robotCount returns the number of different robots that it has admitted.
func (t *Token) robotCount() int {
	names := map[string]bool{}
	for _, u := range t.Used {
		names[u.Robot] = true
	}
	return len(names)
}
