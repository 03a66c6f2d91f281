package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

// Credential authenticates the robot (credential.Credential).
type Credential interface {
	// Join blocks until the robot has a certificate, or ctx ends.
	Join(ctx context.Context) error
	// Run renews the certificate until ctx ends.
	Run(ctx context.Context)
	// Renew gets another certificate now.
	Renew(ctx context.Context) error
	// TLS returns the configuration with the newest certificate, and a channel that is
	// closed when there is a newer one.
	TLS() (*tls.Config, <-chan struct{})
	// MQTTURL returns the broker that the server names. If empty, it names none.
	MQTTURL() string
}

// dialBroker opens the connection below MQTT. The client writes a packet in several parts, and
// locks only a connection that has a lock: packets of several goroutines would be mixed up.
func (l *Connection) dialBroker(ctx context.Context) (net.Conn, error) {
	conn, err := l.dialTransport(ctx)
	if err != nil {
		return nil, err
	}
	return packets.NewThreadSafeConn(conn), nil
}

// dialTransport opens a TLS connection, or a TCP connection to a broker without TLS.
func (l *Connection) dialTransport(ctx context.Context) (net.Conn, error) {
	broker := l.broker.Load()
	switch {
	case l.config.Credential != nil:
		config, renewed := l.config.Credential.TLS()
		l.renewed = renewed
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", broker.Host)
	case broker.Scheme == "mqtts":
		return (&tls.Dialer{Config: l.anonymousTLS()}).DialContext(ctx, "tcp", broker.Host)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", broker.Host)
}

// anonymousTLS returns a configuration that verifies the broker and presents no certificate.
func (l *Connection) anonymousTLS() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if all, err := keyfile.ParseCertificates(l.config.CA); err == nil {
		config.RootCAs = keyfile.NewPool(all...)
	}
	return config
}

// renewIfRefused requests another certificate from the server if the broker refuses the one that the
// robot has: the Robot may have been deleted, and may join again, or the certificate's dates are not
// those of the broker's clock.
func (l *Connection) renewIfRefused(ctx context.Context, ack *paho.Connack, err error) {
	const notAuthorized = 0x87
	isUnauthorized := ack != nil && ack.ReasonCode == notAuthorized
	if l.config.Credential == nil || !isUnauthorized && !isRemoteAlert(err) {
		return
	}
	if err := l.config.Credential.Renew(ctx); err != nil {
		l.log.Warn("the broker refuses the robot's certificate, and the server issued no other", "error", err)
	}
}

// isRemoteAlert reports whether the peer has refused a TLS handshake.
func isRemoteAlert(err error) bool {
	refused, ok := errors.AsType[*net.OpError](err)
	return ok && refused.Op == "remote error" // of crypto/tls
}

// followServersBroker switches to the broker that the server names.
func (l *Connection) followServersBroker() {
	named := l.config.Credential.MQTTURL()
	u, err := url.Parse(named)
	switch {
	case l.config.KeepBroker || named == "":
	case err != nil || u.Scheme != "mqtts" || u.Port() == "":
		l.log.Warn("the server names an invalid MQTT broker, which is ignored", "broker", named, "instead", l.Broker())
	default:
		l.broker.Store(u)
	}
}
