package bridge

import (
	"fmt"
	"net"
	"net/url"
)

// CheckBroker refuses a URL that names no broker, and one of a broker that the
// network is believed for, unless AllowPlaintext says so: whoever is on the way
// there could forge what robots report, and run commands on them.
func (c Config) CheckBroker() error {
	u, err := parseBroker(c.MQTTURL)
	switch {
	case err != nil:
		return err
	case plaintext(u) && !c.AllowPlaintext:
		return fmt.Errorf("the MQTT broker at %s is reached without TLS: whoever is on the way there can run commands on robots; name it by mqtts://, or say --allow-plaintext-broker", u.Redacted())
	}
	return nil
}

func parseBroker(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("MQTT URL %q must look like mqtts://host:8883", rawURL)
	}
	return u, nil
}

// PlaintextBroker tells whether the network is believed on the way to the
// broker: nothing proves to either side who the other is. Within this machine
// there is no network.
func (c Config) PlaintextBroker() bool {
	u, err := parseBroker(c.MQTTURL)
	return err == nil && plaintext(u)
}

func plaintext(u *url.URL) bool {
	switch u.Scheme {
	case "mqtts", "mqtt+ssl", "ssl", "tls", "tcps", "wss":
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}
