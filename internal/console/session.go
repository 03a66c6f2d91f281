package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// A session is the caller's token, sealed so that only consoles with the same key can open it.
// Pages send it in a header. A cookie would go to every port of the console's host name, and so to
// the servers of other users of the machine. The console stores no sessions.
const (
	sessionHeader = "X-K8s4r-Session"
	// sessionLife bounds a session; its token may expire earlier.
	sessionLife = time.Hour
	// maxToken is the length in bytes of the longest token whose session fits a header of 8 KiB,
	// which is the limit of common proxies.
	maxToken = 5000
	// minSecret is the length in bytes of the shortest secret that sessions are sealed with.
	minSecret = 32
)

// errSessionEnded means that a session has expired or was sealed with another key.
var errSessionEnded = errors.New("the session has ended")

func hasSession(r *http.Request) bool {
	return r.Header.Get(sessionHeader) != "" && r.Header.Get("Authorization") == ""
}

// sealSession returns the session of a token.
func (s *Server) sealSession(token string, until time.Time) (string, error) {
	seal, err := s.newSeal()
	if err != nil {
		return "", err
	}
	plain := append(binary.BigEndian.AppendUint64(nil, uint64(until.UnixNano())), token...)
	return base64.RawURLEncoding.EncodeToString(seal.Seal(nil, nil, plain, nil)), nil
}

// openSession returns the token of a session and the end of the session. It returns errSessionEnded
// unless the session is valid now.
func (s *Server) openSession(text string) (token string, until time.Time, err error) {
	seal, err := s.newSeal()
	if err != nil {
		return "", time.Time{}, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", time.Time{}, errSessionEnded
	}
	plain, err := seal.Open(nil, nil, sealed, nil)
	if err != nil || len(plain) < 8 {
		return "", time.Time{}, errSessionEnded
	}
	until = time.Unix(0, int64(binary.BigEndian.Uint64(plain)))
	if !s.now().Before(until) {
		return "", time.Time{}, errSessionEnded
	}
	return string(plain[8:]), until, nil
}

// newSeal returns the cipher of sessions. The secret may have other uses, such as a TLS key, so the
// cipher's key is derived from it.
func (s *Server) newSeal() (cipher.AEAD, error) {
	secret, err := s.secret()
	if err != nil {
		return nil, fmt.Errorf("read the key of sessions: %w", err)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "k8s4r-console session v1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// newSecret returns a function that returns the secret of sessions. With a file, it reads the file
// each time, because other programs renew it. Without one, sessions end with the process.
func newSecret(file string) (func() ([]byte, error), error) {
	if file == "" {
		random := make([]byte, minSecret)
		_, _ = rand.Read(random) // crypto/rand.Read never fails
		return func() ([]byte, error) { return random, nil }, nil
	}
	read := func() ([]byte, error) {
		secret, err := os.ReadFile(file)
		if err == nil && len(secret) < minSecret {
			err = fmt.Errorf("%s: has %d bytes, but must have at least %d", file, len(secret), minSecret)
		}
		return secret, err
	}
	_, err := read()
	return read, err
}
