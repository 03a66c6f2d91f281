package agent

import (
	"context"
	"crypto/tls"
	"net/url"
	"path/filepath"

	"k8s4r.io/k8s4r/internal/agent/credential"
	"k8s4r.io/k8s4r/internal/keyfile"
)

// identityDir is where the robot's key is in the state directory.
const identityDir = "identity"

// openCredential takes hold of the robot's key, if it is to prove itself.
func (a *Agent) openCredential() (err error) {
	c := a.config
	if c.Server == nil {
		return nil
	}
	a.credential, err = credential.Open(credential.Config{
		Dir: filepath.Join(c.StateDir, identityDir), RobotID: c.RobotID, Server: c.Server, Token: c.Token, CAHash: c.CAHash, CA: c.CA, Log: a.log,
	})
	return err
}

// proveLink says how the connection to the broker is secured.
func (a *Agent) proveLink() {
	switch {
	case a.credential != nil:
		a.link.secure, a.link.proven = a.credential.TLS, true
		a.link.register.Token = "" // it is not for the broker to see
		a.link.refused = func(ctx context.Context) {
			if err := a.credential.Renew(ctx); err != nil {
				a.log.Warn("the broker does not take the robot's certificate, and the server gives no other", "error", err)
			}
		}
	case a.config.Broker.Scheme == "mqtts":
		a.link.secure = func() (*tls.Config, <-chan struct{}) { return a.trusting(), nil }
	}
}

// trusting knows the broker, and proves nothing.
func (a *Agent) trusting() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if all, err := keyfile.Certificates(a.config.CA); err == nil {
		config.RootCAs = keyfile.Pool(all...)
	}
	return config
}

// connect keeps the link up until ctx ends. A robot that is to prove itself has
// its certificate first; its tasks do not wait for that.
func (a *Agent) connect(ctx context.Context) {
	if a.credential != nil {
		if err := a.credential.Join(ctx); err != nil {
			return // asked to stop
		}
		a.moveBroker()
		go a.credential.Run(ctx)
	}
	a.link.run(ctx)
}

// moveBroker goes where the server says that the broker is.
func (a *Agent) moveBroker() {
	said := a.credential.MQTTURL()
	u, err := url.Parse(said)
	switch {
	case a.config.BrokerIsGiven || said == "":
	case err != nil || u.Scheme != "mqtts" || u.Port() == "":
		a.log.Warn("the server names a broker that is none", "broker", said, "instead", a.config.Broker.Redacted())
	default:
		a.link.broker = u
		a.broker.Store(u)
	}
}
