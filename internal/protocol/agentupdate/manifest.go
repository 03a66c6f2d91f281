// Package agentupdate describes a version of the agent's program that robots may run: a manifest, signed with
// the key of the operator of the fleet. A robot runs a program only if its manifest is signed with a key in
// the policy file of the robot.
package agentupdate

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
)

// The bounds of a manifest and of the program that it describes, in bytes.
const (
	MaxManifest = 4 << 10
	MaxProgram  = 256 << 20
	maxVersion  = 64
)

// Manifest describes one program. All fields are required.
type Manifest struct {
	// Version is what the program prints with --version.
	Version string `json:"version"`
	// OS and Arch are the platform of the program, as in GOOS and GOARCH.
	OS   string `json:"os"`
	Arch string `json:"arch"`
	// Size of the program in bytes, at most MaxProgram.
	Size int64 `json:"size"`
	// SHA256 of the program in 64 lower-case hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Signature is Ed25519, in base64, of all other fields.
	Signature string `json:"signature"`
}

// ErrUntrusted rejects a manifest that no key of the robot has signed.
var ErrUntrusted = errors.New("signature: it was not made with a key of update.publicKeys in the policy file of the robot, or the manifest was changed; " +
	"sign the program with k8s4r agent-key sign and the right key")

// domain separates these signatures from others that the same key could make.
const domain = "k8s4r-agent-update v1"

// signedText returns what is signed. The fields have no line end, so no two manifests have the same text.
func (m Manifest) signedText() []byte {
	return fmt.Appendf(nil, "%s\n%s\n%s\n%s\n%d\n%s\n", domain, m.Version, m.OS, m.Arch, m.Size, m.SHA256)
}

// Sign returns the manifest with a signature.
func (m Manifest) Sign(key ed25519.PrivateKey) Manifest {
	m.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(key, m.signedText()))
	return m
}

// Verify returns ErrUntrusted unless one of the keys has signed the manifest.
func (m Manifest) Verify(keys []ed25519.PublicKey) error {
	signature, err := base64.StdEncoding.DecodeString(m.Signature)
	if err != nil {
		return ErrUntrusted
	}
	text := m.signedText()
	if slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool { return ed25519.Verify(k, text, signature) }) {
		return nil
	}
	return ErrUntrusted
}

// Parse parses a manifest and validates it. Unknown fields are errors: they would not be signed.
func Parse(text []byte) (m Manifest, err error) {
	if len(text) > MaxManifest {
		return m, fmt.Errorf("the manifest is longer than %d bytes", MaxManifest)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return m, fmt.Errorf("the manifest is not valid; k8s4r agent-key sign makes one: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return m, errors.New("the manifest is not valid: something follows it")
	}
	return m, m.Validate()
}

// Encode returns the manifest as Parse takes it.
func (m Manifest) Encode() []byte {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		panic(err) // texts and a number can always be encoded
	}
	return append(b, '\n')
}

var (
	versionPattern  = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._+-]*$`)
	platformPattern = regexp.MustCompile(`^[0-9a-z]{1,16}$`)
)

// Validate returns an error for a field that is missing or not valid. It does not verify the signature.
func (m Manifest) Validate() error {
	sum, err := hex.DecodeString(m.SHA256)
	signature, notBase64 := base64.StdEncoding.DecodeString(m.Signature)
	switch {
	case ValidateVersion(m.Version) != nil:
		return ValidateVersion(m.Version)
	case !platformPattern.MatchString(m.OS):
		return errors.New("os: must be a name such as linux")
	case !platformPattern.MatchString(m.Arch):
		return errors.New("arch: must be a name such as arm64")
	case m.Size < 1 || m.Size > MaxProgram:
		return fmt.Errorf("size: must be from 1 to %d bytes", MaxProgram)
	case err != nil || len(sum) != 32 || hex.EncodeToString(sum) != m.SHA256:
		return errors.New("sha256: must be 64 lower-case hexadecimal digits")
	case notBase64 != nil || len(signature) != ed25519.SignatureSize || base64.StdEncoding.EncodeToString(signature) != m.Signature:
		return fmt.Errorf("signature: must be %d bytes in base64", ed25519.SignatureSize)
	}
	return nil
}

// ValidateVersion returns an error for a text that is no version.
func ValidateVersion(version string) error {
	if len(version) > maxVersion || !versionPattern.MatchString(version) {
		return fmt.Errorf("version: must be at most %d letters, digits, dots, pluses, underscores and hyphens, such as v0.5.0", maxVersion)
	}
	return nil
}

// CheckPlatform returns an error if the program is for another platform than this one.
func (m Manifest) CheckPlatform(os, arch string) error {
	if m.OS != os || m.Arch != arch {
		return fmt.Errorf("os, arch: the program is for %s/%s and this robot is %s/%s; use the manifest and the program of its platform", m.OS, m.Arch, os, arch)
	}
	return nil
}
