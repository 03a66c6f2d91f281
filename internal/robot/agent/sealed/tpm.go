package sealed

import (
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// openTPM opens the robot's TPM. The kernel keeps what different programs do with it apart.
func openTPM() (transport.TPMCloser, error) { return linuxtpm.Open("/dev/tpmrm0") }

// tpmKey is a key in a file that only the TPM which has created it can decrypt. It is bound to no state of
// the boot: users that run programs as root on the robot can use it.
type tpmKey struct {
	path string
	// connect opens the TPM.
	connect func() (transport.TPMCloser, error)
}

// tpmBlob is the content of the file: a sealed data object, as the TPM has encoded it.
type tpmBlob struct {
	Public  []byte `json:"public"`
	Private []byte `json:"private"`
}

func (k tpmKey) open() (cipher.AEAD, error) {
	text, err := os.ReadFile(k.path)
	if err != nil {
		return nil, err
	}
	var blob tpmBlob
	if err := json.Unmarshal(text, &blob); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errUnusableKey, k.path, err)
	}
	var key []byte
	err = k.withStorageKey(func(t transport.TPM, parent tpm2.CreatePrimaryResponse) (err error) {
		key, err = unseal(t, parent, blob)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("decrypt the key by the TPM: %w", err)
	}
	return newCipher(key)
}

// errUnusableKey reports a key that can never be decrypted.
var errUnusableKey = errors.New("the key cannot be used")

// openOrCreate replaces a key that the TPM refuses to decrypt: it was cleared, or the disk is of another robot.
// After any other failure the key stays, because all that it has sealed would be lost.
func (k tpmKey) openOrCreate() (cipher.AEAD, error) {
	c, err := k.open()
	if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errUnusableKey) {
		return c, err
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	var blob tpmBlob
	err = k.withStorageKey(func(t transport.TPM, parent tpm2.CreatePrimaryResponse) (err error) {
		blob, err = seal(t, parent, key)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("encrypt a key by the TPM: %w", err)
	}
	text, err := json.Marshal(blob)
	if err := errors.Join(err, keyfile.MakeDir(filepath.Dir(k.path)), keyfile.WriteFile(k.path, text)); err != nil {
		return nil, err
	}
	return newCipher(key)
}

// withStorageKey calls do with the storage root key of the TPM, which is derived from its seed each time.
func (k tpmKey) withStorageKey(do func(t transport.TPM, parent tpm2.CreatePrimaryResponse) error) error {
	t, err := k.connect()
	if err != nil {
		return err
	}
	defer t.Close()
	parent, err := tpm2.CreatePrimary{PrimaryHandle: tpm2.TPMRHOwner, InPublic: tpm2.New2B(tpm2.ECCSRKTemplate)}.Execute(t)
	if err != nil {
		return err
	}
	return errors.Join(do(t, *parent), flush(t, parent.ObjectHandle))
}

// seal encrypts data by the TPM.
func seal(t transport.TPM, parent tpm2.CreatePrimaryResponse, data []byte) (tpmBlob, error) {
	auth, err := encryptedSession(parent, tpm2.AESEncryption(128, tpm2.EncryptIn))
	if err != nil {
		return tpmBlob{}, err
	}
	created, err := tpm2.Create{
		ParentHandle: tpm2.AuthHandle{Handle: parent.ObjectHandle, Name: parent.Name, Auth: auth},
		InSensitive:  tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: data})}},
		InPublic: tpm2.New2B(tpm2.TPMTPublic{
			Type: tpm2.TPMAlgKeyedHash, NameAlg: tpm2.TPMAlgSHA256,
			ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, UserWithAuth: true, NoDA: true},
		}),
	}.Execute(t)
	if err != nil {
		return tpmBlob{}, err
	}
	return tpmBlob{Public: tpm2.Marshal(created.OutPublic), Private: tpm2.Marshal(created.OutPrivate)}, nil
}

// unseal decrypts what seal has returned.
func unseal(t transport.TPM, parent tpm2.CreatePrimaryResponse, blob tpmBlob) ([]byte, error) {
	public, err := tpm2.Unmarshal[tpm2.TPM2BPublic](blob.Public)
	if err != nil {
		return nil, err
	}
	private, err := tpm2.Unmarshal[tpm2.TPM2BPrivate](blob.Private)
	if err != nil {
		return nil, err
	}
	loaded, err := tpm2.Load{
		ParentHandle: tpm2.AuthHandle{Handle: parent.ObjectHandle, Name: parent.Name, Auth: tpm2.PasswordAuth(nil)}, InPrivate: *private, InPublic: *public,
	}.Execute(t)
	if err != nil {
		return nil, markRefusal(err)
	}
	auth, err := encryptedSession(parent, tpm2.AESEncryption(128, tpm2.EncryptOut))
	if err != nil {
		return nil, errors.Join(err, flush(t, loaded.ObjectHandle))
	}
	data, err := tpm2.Unseal{ItemHandle: tpm2.AuthHandle{Handle: loaded.ObjectHandle, Name: loaded.Name, Auth: auth}}.Execute(t)
	if err := errors.Join(err, flush(t, loaded.ObjectHandle)); err != nil {
		return nil, err
	}
	return data.OutData.Buffer, nil
}

// markRefusal makes an answer of the TPM that it will repeat an errUnusableKey. Others are warnings: it is busy,
// or has no memory left.
func markRefusal(err error) error {
	if answer := tpm2.TPMRC(0); errors.As(err, &answer) && !answer.IsWarning() {
		return fmt.Errorf("%w: %w", errUnusableKey, err)
	}
	return err
}

// encryptedSession returns a session that encrypts the key on the wires between processor and TPM.
func encryptedSession(parent tpm2.CreatePrimaryResponse, encryption tpm2.AuthOption) (tpm2.Session, error) {
	public, err := parent.OutPublic.Contents()
	if err != nil {
		return nil, err
	}
	return tpm2.HMAC(tpm2.TPMAlgSHA256, 16, encryption, tpm2.Salted(parent.ObjectHandle, *public)), nil
}

func flush(t transport.TPM, handle tpm2.TPMHandle) error {
	_, err := tpm2.FlushContext{FlushHandle: handle}.Execute(t)
	return err
}
