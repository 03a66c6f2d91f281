package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// networkPatience bounds each step over the network.
const networkPatience = 5 * time.Second

// broker resolves the broker's name, and says hello to it.
func broker(ctx context.Context, s Subject) []Finding {
	host := s.Broker.Hostname()
	var found []Finding
	if net.ParseIP(host) == nil {
		f := resolve(ctx, host)
		if found = append(found, f); f.Level != OK {
			return found
		}
	}
	if err := hello(ctx, s); err != nil {
		return append(found, bad(Fail, "broker", fmt.Sprintf("%s: %v", s.Broker.Redacted(), err),
			"see that the broker runs, that --mqtt-url is right, and that no firewall is between"))
	}
	return append(found, good("broker", s.Broker.Redacted()+" answers"))
}

func resolve(ctx context.Context, host string) Finding {
	ctx, cancel := context.WithTimeout(ctx, networkPatience)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return bad(Fail, "dns", fmt.Sprintf("the broker's name is not found: %v", err), "see that --mqtt-url is right, and /etc/resolv.conf")
	}
	return good("dns", fmt.Sprintf("%s is %s", host, addresses[0]))
}

// hello connects by a name of our own: by the agent's it would throw that one out.
func hello(ctx context.Context, s Subject) error {
	ctx, cancel := context.WithTimeout(ctx, networkPatience)
	defer cancel()
	if s.Broker.Scheme == "mqtts" {
		return handshake(ctx, s.Broker.Host)
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
	client := paho.NewClient(paho.ClientConfig{Conn: conn, PacketTimeout: networkPatience})
	if _, err := client.Connect(ctx, packet); err != nil {
		return fmt.Errorf("it takes connections, but does not speak MQTT 5 with us: %w", err)
	}
	return client.Disconnect(&paho.Disconnect{})
}

// handshake sees whether TLS is spoken at an address. Whom to trust there is the
// agent's business, and only the robot itself has what proves it.
func handshake(ctx context.Context, address string) error {
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// certificates looks for those by which https is trusted.
func certificates() []Finding {
	pool, err := x509.SystemCertPool()
	if err != nil || pool.Equal(x509.NewCertPool()) {
		return []Finding{bad(Warn, "certificates", "this host trusts no authority: artifacts from https addresses are refused",
			"install the package ca-certificates")}
	}
	return []Finding{good("certificates", "there are authorities to trust for https")}
}
