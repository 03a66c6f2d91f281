package broker

import (
	"crypto/x509"
	"errors"
	"time"

	"k8s4r.io/k8s4r/internal/wire"
)

// Peer is what is known of a connection when it says CONNECT, before any
// session is touched.
type Peer struct {
	ClientID    string
	Username    string
	Password    []byte
	Certificate *x509.Certificate // verified leaf; nil without TLS client authentication
	Address     string            // host and port that it comes from
}

// Role is what a connection is to the others, from which follows what it may
// say and hear. The zero value may do nothing.
type Role int

const (
	// RoleNone may do nothing.
	RoleNone Role = iota
	// RoleRobot is one of our agents. Its client id is its name.
	RoleRobot
	// RoleServer is k8s4r-server. Its client id is its name.
	RoleServer
	// RoleLegacy is an agent of the document: it also speaks on the topics that all
	// such agents share, and its client id is LegacyPrefix and its name.
	RoleLegacy
	// RoleConsole is k8s4r-console, which tells everybody what happens and hears nobody. Its
	// client id is its name.
	RoleConsole
	// RoleAnonymous proves nothing, and was let in all the same. It may do
	// everything, but not speak for a robot that proves itself, or for the console.
	RoleAnonymous
	// roleAny may do everything: nobody was asked who it is.
	roleAny
)

// LegacyPrefix stands before the robot id in the client id of a document agent.
const LegacyPrefix = "k8s4r-agent-"

// Identity is who a connection is.
type Identity struct {
	Name string // robot id, "k8s4r-server" or "k8s4r-console"
	Role Role
	// Generation changes when the credential behind a name is another one: what
	// waited for the holder of the old one is not for that of the new.
	Generation string
	// Expires ends the connection. Zero: never; but no connection outlives the
	// certificate that it came with.
	Expires time.Time
	// Proven tells which robots prove themselves, so that RoleAnonymous may not
	// publish on their topics. It is asked for each message: a robot may have
	// joined since. Nil: none do.
	Proven func(robotID string) bool
}

// Authority says who a peer is. An error refuses the connection with reason
// 0x87, and goes to the log, so it holds no secret. Identify is called by many
// connections at once, and may be called twice for one.
type Authority interface {
	Identify(Peer) (Identity, error)
}

// everyone is the authority of a broker that was given none.
type everyone struct{}

// Identify is of Authority.
func (everyone) Identify(Peer) (Identity, error) { return Identity{Role: roleAny}, nil }

// clientID is the one under which an identity has its session. Empty: any.
func (id Identity) clientID() string {
	switch id.Role {
	case roleAny, RoleAnonymous:
		return ""
	case RoleLegacy:
		return LegacyPrefix + id.Name
	default:
		return id.Name
	}
}

// valid refuses a name that would be more than one level of a topic, or a
// wildcard, whatever the authority thinks of it.
func (id Identity) valid() error {
	switch id.Role {
	case RoleRobot, RoleLegacy:
		return wire.ValidRobotID(id.Name)
	case RoleNone:
		return errors.New("its identity has no role")
	default:
		return nil
	}
}

// same tells whether an identity may have what another one left behind.
func (id Identity) same(other Identity) bool {
	return id.sameHolder(other) && id.Generation == other.Generation
}

func (id Identity) sameHolder(other Identity) bool {
	return id.Name == other.Name && id.Role == other.Role
}

// isBounded tells those that the broker bounds from those that it trusts.
func (id Identity) isBounded() bool {
	return id.Role != RoleServer && id.Role != RoleConsole && id.Role != roleAny
}

func (id Identity) expired(now time.Time) bool {
	return !id.Expires.IsZero() && !now.Before(id.Expires)
}
