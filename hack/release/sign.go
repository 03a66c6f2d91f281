package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// payloadType is that of in-toto statements.
const payloadType = "application/vnd.in-toto+json"

// envelope is a DSSE envelope: https://github.com/secure-systems-lab/dsse.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     string      `json:"payload"` // base64
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   string `json:"sig"` // base64
}

// signStatement returns the envelope of a statement.
func signStatement(s *statement, key ed25519.PrivateKey) ([]byte, error) {
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	id, err := keyID(key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(envelope{
		PayloadType: payloadType, Payload: base64.StdEncoding.EncodeToString(payload),
		Signatures: []signature{{id, base64.StdEncoding.EncodeToString(ed25519.Sign(key, encodePayload(payload)))}},
	})
	return append(text, '\n'), err
}

// openEnvelope returns the statement if the key has signed it.
func openEnvelope(text []byte, key ed25519.PublicKey) (*statement, error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	payload, err := base64.StdEncoding.DecodeString(e.Payload)
	if err != nil {
		return nil, err
	}
	if e.PayloadType != payloadType || !isSigned(e.Signatures, payload, key) {
		return nil, errors.New("the key has not signed it")
	}
	s := &statement{}
	return s, json.Unmarshal(payload, s)
}

func isSigned(all []signature, payload []byte, key ed25519.PublicKey) bool {
	for _, s := range all {
		if sig, err := base64.StdEncoding.DecodeString(s.Sig); err == nil && ed25519.Verify(key, encodePayload(payload), sig) {
			return true
		}
	}
	return false
}

// encodePayload returns the bytes that are signed: DSSE's pre-authentication encoding.
func encodePayload(payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload)), payload...)
}

// keyID returns the SHA-256 of the public key as openssl encodes it.
func keyID(key ed25519.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:]), err
}

func encodePublicKey(key ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

func readPrivateKey(file string) (ed25519.PrivateKey, error) {
	der, err := readPEM(file, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	own, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: must be an Ed25519 key", file)
	}
	return own, nil
}

func readPublicKey(file string) (ed25519.PublicKey, error) {
	der, err := readPEM(file, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	own, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s: must be an Ed25519 key", file)
	}
	return own, nil
}

func readPEM(file, kind string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s: has no %s in PEM", file, kind)
	}
	return block.Bytes, nil
}
