package wire

import (
	"fmt"
	"net"
	"net/url"
)

// Broker reads the URL of an MQTT broker. The error says how one looks.
func Broker(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("MQTT URL %q must look like mqtts://host:8883", rawURL)
	}
	return u, nil
}

// Plaintext tells whether the network is believed on the way to a broker: nothing proves to
// either side who the other is. Within this machine there is no network.
func Plaintext(broker *url.URL) bool {
	switch broker.Scheme {
	case "mqtts", "mqtt+ssl", "ssl", "tls", "tcps", "wss":
		return false
	}
	ip := net.ParseIP(broker.Hostname())
	return broker.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}
