package diagnose

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// networkTimeout limits each step over the network.
const networkTimeout = 5 * time.Second

// checkBroker resolves the broker's name and connects to it.
func checkBroker(ctx context.Context, s Subject) []Finding {
	host := s.Broker.Hostname()
	var found []Finding
	if net.ParseIP(host) == nil {
		f := resolveBroker(ctx, host)
		if found = append(found, f); f.Level != OK {
			return found
		}
	}
	if err := connectBroker(ctx, s); err != nil {
		return append(found, newFinding(Fail, "broker", fmt.Sprintf("%s: %v", s.Broker.Redacted(), err),
			"check that the broker runs, that --mqtt-url is correct, and that no firewall blocks the port"))
	}
	return append(found, okFinding("broker", s.Broker.Redacted()+" answers"))
}

func resolveBroker(ctx context.Context, host string) Finding {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return newFinding(Fail, "dns", fmt.Sprintf("the broker's name is not found: %v", err), "check --mqtt-url and /etc/resolv.conf")
	}
	return okFinding("dns", fmt.Sprintf("%s is %s", host, addresses[0]))
}

// connectBroker connects with a client id of its own: the agent's would end its connection.
func connectBroker(ctx context.Context, s Subject) error {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	if s.Broker.Scheme == "mqtts" {
		return tryTLS(ctx, s.Broker.Host)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Broker.Host)
	if err != nil {
		return err
	}
	defer conn.Close()
	packet := &paho.Connect{ClientID: "k8s4r-doctor-" + s.RobotID, CleanStart: true, KeepAlive: 60}
	if u := s.Broker.User; u != nil {
		packet.Username, packet.UsernameFlag = u.Username(), true
		if password, ok := u.Password(); ok {
			packet.Password, packet.PasswordFlag = []byte(password), true
		}
	}
	client := paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: networkTimeout})
	if _, err := client.Connect(ctx, packet); err != nil {
		return fmt.Errorf("it accepts connections, but does not support MQTT 5: %w", err)
	}
	return client.Disconnect(&paho.Disconnect{})
}

// tryTLS checks that a TLS handshake succeeds. It verifies no certificate: the agent does, and
// presents the robot's.
func tryTLS(ctx context.Context, address string) error {
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// checkCertificates checks that the host has authorities for https.
func checkCertificates() []Finding {
	pool, err := x509.SystemCertPool()
	if err != nil || pool.Equal(x509.NewCertPool()) {
		return []Finding{newFinding(Warn, "certificates", "no certificate authorities are installed: downloads of artifacts over https will fail",
			"install the package ca-certificates")}
	}
	return []Finding{okFinding("certificates", "certificate authorities for https are installed")}
}
