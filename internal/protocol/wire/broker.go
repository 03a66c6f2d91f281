package wire

import (
	"fmt"
	"net"
	"net/url"
)

// ParseBrokerURL parses the URL of an MQTT broker. The error shows an example.
func ParseBrokerURL(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("MQTT URL %q must look like mqtts://host:8883", rawURL)
	}
	return u, nil
}

// IsPlaintext reports whether the connection to a broker leaves this machine without TLS.
func IsPlaintext(broker *url.URL) bool {
	switch broker.Scheme {
	case "mqtts", "mqtt+ssl", "ssl", "tls", "tcps", "wss":
		return false
	}
	ip := net.ParseIP(broker.Hostname())
	return broker.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}
