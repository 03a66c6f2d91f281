package bridge

import (
	"fmt"

	"k8s4r.io/k8s4r/internal/wire"
)

// CheckBroker refuses a URL that names no broker, and one of a broker that the
// network is believed for, unless AllowPlaintext says so: whoever is on the way
// there could forge what robots report, and run commands on them.
func (c Config) CheckBroker() error {
	u, err := wire.Broker(c.MQTTURL)
	switch {
	case err != nil:
		return err
	case wire.Plaintext(u) && !c.AllowPlaintext:
		return fmt.Errorf("the MQTT broker at %s is reached without TLS: whoever is on the way there can run commands on robots; name it by mqtts://, or say --allow-plaintext-broker", u.Redacted())
	}
	return nil
}

// PlaintextBroker tells whether the network is believed on the way to the
// broker: nothing proves to either side who the other is. Within this machine
// there is no network.
func (c Config) PlaintextBroker() bool {
	u, err := wire.Broker(c.MQTTURL)
	return err == nil && wire.Plaintext(u)
}
