package jointoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namePrefix of the Secrets.
const namePrefix = "k8s4r-join-token-"

// The keys of a Secret.
const (
	keySalt      = "salt"
	keyHash      = "secret-hash"
	keyExpires   = "expires"
	keyUses      = "uses"
	keyQuota     = "quota"
	keyRobots    = "robots"
	keyLabels    = "labels"
	keyNamespace = "namespace"
	keyUsed      = "used"
)

// SecretName returns the name of the Secret of a token.
func SecretName(id string) string { return namePrefix + id }

// ToSecret returns the token as an object in the namespace of the server.
func (t Token) ToSecret(namespace string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName(t.ID)},
		Type:       Type,
		Data: map[string][]byte{
			keySalt: t.salt, keyHash: t.hash, keyExpires: []byte(t.Expires.UTC().Format(time.RFC3339)),
			keyUses: []byte(strconv.Itoa(t.Uses)), keyQuota: []byte(strconv.Itoa(t.Quota)),
			keyRobots: []byte(t.Robots), keyNamespace: []byte(t.Namespace), keyLabels: encodeJSON(t.Labels),
		},
	}
	t.writeUsed(s)
	return s
}

func (t Token) writeUsed(s *corev1.Secret) { s.Data[keyUsed] = encodeJSON(t.Used) }

// encodeJSON cannot fail for the fields of a Token.
func encodeJSON(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// FromSecret returns the token that a Secret holds.
func FromSecret(s *corev1.Secret) (Token, error) {
	t := Token{
		ID: s.Name[min(len(namePrefix), len(s.Name)):], salt: s.Data[keySalt], hash: s.Data[keyHash],
		Robots: string(s.Data[keyRobots]), Namespace: string(s.Data[keyNamespace]),
	}
	var errs [5]error
	t.Expires, errs[0] = time.Parse(time.RFC3339, string(s.Data[keyExpires]))
	t.Uses, errs[1] = strconv.Atoi(string(s.Data[keyUses]))
	t.Quota, errs[2] = strconv.Atoi(string(s.Data[keyQuota]))
	errs[3] = json.Unmarshal(s.Data[keyLabels], &t.Labels)
	errs[4] = json.Unmarshal(s.Data[keyUsed], &t.Used)
	if err := errors.Join(errs[:]...); err != nil || s.Type != Type || len(t.salt) == 0 {
		return Token{}, fmt.Errorf("secret %s is not a join token: %w", s.Name, errors.Join(err, errors.New("revoke it and create another")))
	}
	return t, nil
}

// Store redeems the tokens of one namespace. A server has one, so that its bound on reads holds.
type Store struct {
	Client client.Client
	// Live bypasses the cache: a cache of all Secrets for one would be a waste.
	Live      client.Reader
	Namespace string
	Now       func() time.Time

	known knownTokens
}

// RefusedError says why a token does not admit a robot. Users read it.
type RefusedError struct{ Err error }

// Error implements error.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Err }

// maxAttempts bounds how often the write of a use is retried after a conflict with another robot.
const maxAttempts = 20

// Redeem admits a robot with a key, and records that. A repeated call with the same arguments
// uses the token once. It fails with a RefusedError, with ErrTooSoon, or with another error if the
// API server cannot be asked.
func (s *Store) Redeem(ctx context.Context, text, robot, key string) (Token, error) {
	id, secret, err := ParseToken(text)
	if err != nil {
		return Token{}, &RefusedError{err}
	}
	for range maxAttempts {
		t, err := s.tryRedeem(ctx, id, secret, robot, key)
		if !apierrors.IsConflict(err) {
			return t, err
		}
	}
	return Token{}, fmt.Errorf("join token %s: too many robots use it at the same time; try again", id)
}

func (s *Store) tryRedeem(ctx context.Context, id, secret, robot, key string) (Token, error) {
	o, t, err := s.readToken(ctx, id, secret)
	if err != nil {
		return Token{}, err
	}
	isNew, err := t.admitRobot(s.Now(), robot, key)
	if err != nil {
		return Token{}, &RefusedError{err}
	}
	if !isNew {
		return t, nil
	}
	t.writeUsed(o)
	if err := s.Client.Update(ctx, o); err != nil {
		return Token{}, err
	}
	return t, nil
}

// CheckUsed returns nil if a token has admitted this robot with this key. That holds after the
// token has expired, until it is revoked: it is for robots that have no other proof. It fails as
// Redeem does.
func (s *Store) CheckUsed(ctx context.Context, text, robot, key string) error {
	id, secret, err := ParseToken(text)
	if err != nil {
		return &RefusedError{err}
	}
	_, t, err := s.readToken(ctx, id, secret)
	if err == nil && !slices.Contains(t.Used, Use{Robot: robot, Key: key}) {
		err = &RefusedError{fmt.Errorf("join token %s has not admitted robot %s", id, robot)}
	}
	return err
}

// readToken returns the token with its Secret.
func (s *Store) readToken(ctx context.Context, id, secret string) (*corev1.Secret, Token, error) {
	if err := s.checkKnown(ctx, id, secret); err != nil {
		return nil, Token{}, err
	}
	var o corev1.Secret
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: SecretName(id)}, &o)
	if apierrors.IsNotFound(err) {
		s.known.forget(id)
		return nil, Token{}, &RefusedError{ErrUnknown}
	}
	if err != nil {
		return nil, Token{}, fmt.Errorf("read join token %s: %w", id, err)
	}
	t, err := FromSecret(&o)
	if err != nil || !t.matchesSecret(secret) {
		s.known.forget(id)
		return nil, Token{}, &RefusedError{ErrUnknown}
	}
	return &o, t, nil
}

// ListTokens returns the tokens of a namespace.
func ListTokens(ctx context.Context, r client.Reader, namespace string) ([]Token, error) {
	list, err := listSecrets(ctx, r, namespace)
	if err != nil {
		return nil, err
	}
	var out []Token
	for i := range list.Items {
		t, err := FromSecret(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func listSecrets(ctx context.Context, r client.Reader, namespace string) (*corev1.SecretList, error) {
	list := &corev1.SecretList{}
	if err := r.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"type": Type}); err != nil {
		return nil, fmt.Errorf("list join tokens: %w", err)
	}
	return list, nil
}
