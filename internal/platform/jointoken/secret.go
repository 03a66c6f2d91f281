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

// SecretName of the token with this id.
func SecretName(id string) string { return namePrefix + id }

// Secret is the token as an object in the namespace of the server.
func (t Token) Secret(namespace string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: SecretName(t.ID)},
		Type:       Type,
		Data: map[string][]byte{
			keySalt: t.salt, keyHash: t.hash, keyExpires: []byte(t.Expires.UTC().Format(time.RFC3339)),
			keyUses: []byte(strconv.Itoa(t.Uses)), keyQuota: []byte(strconv.Itoa(t.Quota)),
			keyRobots: []byte(t.Robots), keyNamespace: []byte(t.Namespace), keyLabels: encode(t.Labels),
		},
	}
	t.writeUsed(s)
	return s
}

func (t Token) writeUsed(s *corev1.Secret) { s.Data[keyUsed] = encode(t.Used) }

// encode cannot fail for what a Token holds.
func encode(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// Read takes a token from its Secret.
func Read(s *corev1.Secret) (Token, error) {
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
		return Token{}, fmt.Errorf("secret %s is not a join token: %w", s.Name, errors.Join(err, errors.New("revoke it and make another")))
	}
	return t, nil
}

// Store redeems the tokens of one namespace.
type Store struct {
	Client client.Client
	// Live reads past the cache: nobody keeps all Secrets for the sake of one.
	Live      client.Reader
	Namespace string
	Now       func() time.Time
}

// RefusedError says why a token does not let a robot in, for its people.
type RefusedError struct{ Why error }

// Error is the sentence.
func (e *RefusedError) Error() string { return e.Why.Error() }

// Unwrap gives the sentence's own error.
func (e *RefusedError) Unwrap() error { return e.Why }

// maxTries bounds how often a use is noted anew because another robot was
// faster.
const maxTries = 20

// Redeem lets a robot in with a key, and notes that. It may be called again
// with the same: that costs no second use. It fails with a RefusedError, or
// because the API server cannot be asked.
func (s *Store) Redeem(ctx context.Context, text, robot, key string) (Token, error) {
	id, secret, err := Parse(text)
	if err != nil {
		return Token{}, &RefusedError{err}
	}
	for range maxTries {
		t, err := s.redeem(ctx, id, secret, robot, key)
		if !apierrors.IsConflict(err) {
			return t, err
		}
	}
	return Token{}, fmt.Errorf("join token %s: too many robots use it at the same moment", id)
}

func (s *Store) redeem(ctx context.Context, id, secret, robot, key string) (Token, error) {
	o, t, err := s.read(ctx, id, secret)
	if err != nil {
		return Token{}, err
	}
	news, err := t.admit(s.Now(), robot, key)
	if err != nil {
		return Token{}, &RefusedError{err}
	}
	if !news {
		return t, nil
	}
	t.writeUsed(o)
	if err := s.Client.Update(ctx, o); err != nil {
		return Token{}, err
	}
	return t, nil
}

// Knows tells whether a token has let in a robot with a key. That holds beyond the
// token's end, until it is revoked: it is for robots that have nothing else to
// show. It fails as Redeem does.
func (s *Store) Knows(ctx context.Context, text, robot, key string) error {
	id, secret, err := Parse(text)
	if err != nil {
		return &RefusedError{err}
	}
	_, t, err := s.read(ctx, id, secret)
	if err == nil && !slices.Contains(t.Used, Use{Robot: robot, Key: key}) {
		err = &RefusedError{fmt.Errorf("join token %s has not let in robot %s", id, robot)}
	}
	return err
}

// read finds the token that text is for.
func (s *Store) read(ctx context.Context, id, secret string) (*corev1.Secret, Token, error) {
	var o corev1.Secret
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: SecretName(id)}, &o)
	if apierrors.IsNotFound(err) {
		return nil, Token{}, &RefusedError{ErrUnknown}
	}
	if err != nil {
		return nil, Token{}, fmt.Errorf("read join token %s: %w", id, err)
	}
	t, err := Read(&o)
	if err != nil || !t.knows(secret) {
		return nil, Token{}, &RefusedError{ErrUnknown}
	}
	return &o, t, nil
}

// List finds the tokens of a namespace.
func List(ctx context.Context, r client.Reader, namespace string) ([]Token, error) {
	var list corev1.SecretList
	if err := r.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{"type": Type}); err != nil {
		return nil, fmt.Errorf("list join tokens: %w", err)
	}
	var out []Token
	for i := range list.Items {
		t, err := Read(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}
