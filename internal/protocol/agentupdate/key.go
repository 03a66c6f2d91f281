package agentupdate

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// keyPrefix begins the text of a public key.
const keyPrefix = "ed25519:"

// NewKey creates a key and returns the private one in PEM, and the text of the public one for policy files.
func NewKey() (private []byte, public string, err error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, "", fmt.Errorf("make a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), FormatPublicKey(key), nil
}

// FormatPublicKey returns the text of the public key that belongs to a private one.
func FormatPublicKey(key ed25519.PrivateKey) string {
	return keyPrefix + base64.StdEncoding.EncodeToString(key[ed25519.SeedSize:])
}

// ParsePrivateKey parses a private key in PEM.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("is not PEM; k8s4r agent-key new makes a key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("is not a private key: %w", err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("is not an Ed25519 key; k8s4r agent-key new makes one")
	}
	return key, nil
}

// ParsePublicKey parses the text of a public key.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	encoded, ok := strings.CutPrefix(text, keyPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("must be %sKEY, as k8s4r agent-key new prints it", keyPrefix)
	}
	return key, nil
}
