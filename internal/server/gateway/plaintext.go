package gateway

import (
	"fmt"

	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// ValidateBroker returns an error if MQTTURL is invalid, or its broker is on another
// machine and has no TLS, unless AllowPlaintext is set: an attacker on the network could
// forge reports and run commands on robots.
func (c Config) ValidateBroker() error {
	u, err := wire.ParseBrokerURL(c.MQTTURL)
	switch {
	case err != nil:
		return err
	case wire.IsPlaintext(u) && !c.AllowPlaintext:
		return fmt.Errorf("the MQTT broker at %s is reached without TLS: anyone on the network path can run commands on robots; use an mqtts:// URL, or set --allow-plaintext-broker", u.Redacted())
	}
	return nil
}

// IsPlaintextBroker reports whether the broker is on another machine and has no TLS.
func (c Config) IsPlaintextBroker() bool {
	u, err := wire.ParseBrokerURL(c.MQTTURL)
	return err == nil && wire.IsPlaintext(u)
}
