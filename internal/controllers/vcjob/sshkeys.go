package vcjob

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"math/big"
)

// SSHKeyBits is the size of the RSA keys that the plugin ssh generates.
const SSHKeyBits = 2048

// encodeKeyPair returns a key as PEM text (PKCS #1), and its public part as a line of
// authorized_keys.
func encodeKeyPair(key *rsa.PrivateKey) (private, public []byte) {
	private = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return private, encodePublicKey(&key.PublicKey)
}

// encodePublicKey returns a public key as a line of authorized_keys (RFC 4253, section 6.6).
func encodePublicKey(key *rsa.PublicKey) []byte {
	var blob []byte
	for _, field := range [][]byte{[]byte("ssh-rsa"), encodeMPInt(big.NewInt(int64(key.E))), encodeMPInt(key.N)} {
		blob = binary.BigEndian.AppendUint32(blob, uint32(len(field)))
		blob = append(blob, field...)
	}
	return []byte("ssh-rsa " + base64.StdEncoding.EncodeToString(blob) + "\n")
}

// encodeMPInt returns a positive number as an mpint of RFC 4251: its first bit is the sign.
func encodeMPInt(n *big.Int) []byte {
	if n.BitLen()%8 == 0 {
		return append([]byte{0}, n.Bytes()...)
	}
	return n.Bytes()
}

// derivePublicKey returns the public part of an RSA key in PEM format as a line of authorized_keys.
// Nil if the text is of another format.
func derivePublicKey(private string) []byte {
	block, _ := pem.Decode([]byte(private))
	if block == nil {
		return nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return encodePublicKey(&key.PublicKey)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if key, ok := key.(*rsa.PrivateKey); ok && err == nil {
		return encodePublicKey(&key.PublicKey)
	}
	return nil
}
