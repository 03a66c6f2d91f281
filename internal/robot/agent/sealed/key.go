package sealed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-tpm/tpm2/transport"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// keySize is that of AES-256.
const keySize = 32

// keyKeeper keeps the key of a Store on the disk.
type keyKeeper interface {
	// open returns the cipher with the key. The error is fs.ErrNotExist if there is no key.
	open() (cipher.AEAD, error)
	// openOrCreate is open, and creates a key if there is none or it cannot be used any more.
	openOrCreate() (cipher.AEAD, error)
}

// robotKey is a key of the TPM, or a file if the robot has no TPM that the agent's user may open. A TPM that
// fails, or is missing although it has a key, is an error: the key must not be less protected than before.
type robotKey struct {
	dir     string
	connect func() (transport.TPMCloser, error)
}

func (k robotKey) open() (cipher.AEAD, error)         { return k.choose().open() }
func (k robotKey) openOrCreate() (cipher.AEAD, error) { return k.choose().openOrCreate() }

func (k robotKey) choose() keyKeeper {
	ofTPM := tpmKey{filepath.Join(k.dir, keyOfTPM), k.connect}
	if _, err := os.Stat(ofTPM.path); !errors.Is(err, fs.ErrNotExist) {
		return ofTPM
	}
	t, err := k.connect()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fileKey{filepath.Join(k.dir, keyInFile)}
	}
	if err == nil {
		_ = t.Close()
	}
	return ofTPM
}

// fileKey is a key in a file that the agent's user alone can read.
type fileKey struct{ path string }

func (k fileKey) open() (cipher.AEAD, error) {
	key, err := os.ReadFile(k.path)
	if err != nil {
		return nil, err
	}
	return newCipher(key)
}

func (k fileKey) openOrCreate() (cipher.AEAD, error) {
	c, err := k.open()
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errKeySize) {
		return c, err
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	if err := errors.Join(keyfile.MakeDir(filepath.Dir(k.path)), keyfile.WriteFile(k.path, key)); err != nil {
		return nil, err
	}
	return newCipher(key)
}

// errKeySize reports a key that was not written completely.
var errKeySize = errors.New("the key has another length")

// newCipher returns AES-256-GCM, which prepends a random nonce to what it seals.
func newCipher(key []byte) (cipher.AEAD, error) {
	if len(key) != keySize {
		return nil, fmt.Errorf("%w than %d bytes: %d", errKeySize, keySize, len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
