package broker

import (
	"crypto/x509"
	"errors"
	"time"

	"k8s4r.io/k8s4r/internal/protocol/acl"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Peer holds what a client presents in its CONNECT packet and TLS handshake.
type Peer struct {
	ClientID    string
	Username    string
	Password    []byte
	Certificate *x509.Certificate // verified leaf; nil without TLS client authentication
	Address     string            // host and port of the client
}

// LegacyPrefix precedes the robot ID in the client ID of a legacy agent. The client
// IDs of all other authenticated clients are their names.
const LegacyPrefix = "k8s4r-agent-"

// Identity is the authenticated identity of a connection.
type Identity struct {
	Name string   // robot ID, "k8s4r-server" or "k8s4r-console"
	Role acl.Role // determines the permissions; empty: none
	// Generation changes with the credential of a name. Messages that are queued
	// for the old credential are not delivered to the new one.
	Generation string
	// Expires is when the broker ends the connection. If zero, the connection lasts
	// as long as the client's certificate.
	Expires time.Time
	// IsAuthenticated reports whether a robot has a certificate, so that anonymous
	// clients may not publish on its topics. It is called for each message, because
	// robots join later. If nil, no robot has one.
	IsAuthenticated func(robotID string) bool
}

// ErrNotReady means that an Authenticator cannot identify clients yet.
var ErrNotReady = errors.New("clients cannot be authenticated yet")

// Authenticator authenticates clients. An error refuses the connection and is logged, so it must
// not contain secrets. The reason is 0x88 for ErrNotReady, after which robots try again, and else
// 0x87, after which they request another certificate. Authenticate is called concurrently, and may
// be called twice for one connection.
type Authenticator interface {
	Authenticate(Peer) (Identity, error)
}

// allowEveryone is the Authenticator of a broker without access control.
type allowEveryone struct{}

// Authenticate implements Authenticator.
func (allowEveryone) Authenticate(Peer) (Identity, error) {
	return Identity{Role: acl.Unrestricted}, nil
}

// requiredClientID returns the client ID that an identity has to use. If empty, any.
func (id Identity) requiredClientID() string {
	switch id.Role {
	case acl.Unrestricted, acl.Anonymous:
		return ""
	case acl.LegacyAgent:
		return LegacyPrefix + id.Name
	default:
		return id.Name
	}
}

// validate rejects robot IDs that are more than one topic level, or a wildcard,
// even if the Authenticator accepts them.
func (id Identity) validate() error {
	switch id.Role {
	case acl.Robot, acl.LegacyAgent:
		return wire.ValidateRobotID(id.Name)
	case "":
		return errors.New("its identity has no role")
	default:
		return nil
	}
}

// canResume reports whether an identity may take over what another one left behind.
func (id Identity) canResume(other Identity) bool {
	return id.isSameClient(other) && id.Generation == other.Generation
}

func (id Identity) isSameClient(other Identity) bool {
	return id.Name == other.Name && id.Role == other.Role
}

// isLimited reports whether the broker limits the rate and the queues of a client.
// The server, the console and all clients without access control are trusted.
func (id Identity) isLimited() bool {
	return id.Role != acl.Server && id.Role != acl.Console && id.Role != acl.Unrestricted
}

func (id Identity) isExpired(now time.Time) bool {
	return !id.Expires.IsZero() && !now.Before(id.Expires)
}
