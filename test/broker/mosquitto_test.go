package broker_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/broker/mosquitto"
	"k8s4r.io/k8s4r/internal/testkit"
	"k8s4r.io/k8s4r/internal/testkit/testca"
)

// debian is Debian's Mosquitto with our configuration.
type debian struct {
	t       testing.TB
	ca      *testca.Authority
	address string
	admin   *tls.Certificate
	log     func() []byte
}

func newDebian(t testing.TB) *debian {
	t.Helper()
	d := &debian{t: t, ca: testca.New(t), address: testkit.FreeAddr(t)}
	d.admin = d.ca.NewClientCertificate(mosquitto.AdminName, time.Hour)
	dir := t.TempDir()
	d.ca.WriteServerFiles(dir)
	files, err := mosquitto.Config{
		Listen: d.address, Dir: dir, CAFile: "ca.crt", CertFile: "tls.crt", KeyFile: "tls.key", Plugin: testkit.FindMosquittoPlugin(t), Robots: []string{"r1"},
	}.Files()
	if err != nil {
		t.Fatal(err)
	}
	p := testkit.NewConfiguredMosquitto(t, dir, files)
	p.Start()
	d.log = p.ReadLog
	testkit.Eventually(t, 10*time.Second, "mosquitto lets an operator in", func() bool {
		conn, err := d.dialTLS(d.admin)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	return d
}

func (d *debian) authority() *testca.Authority { return d.ca }

func (d *debian) dialTLS(certificate *tls.Certificate) (net.Conn, error) {
	return dialTLS(d.t, d.address, d.ca, certificate)
}

func (d *debian) dialPlain() (net.Conn, error) {
	return net.DialTimeout("tcp", d.address, waitTimeout)
}

// admit may be repeated: r1 is in the configuration already.
func (d *debian) admit(robot string) {
	d.t.Helper()
	d.control(mosquitto.AdmitCommands(robot))
}

func (d *debian) revoke(name string) {
	d.t.Helper()
	d.control(mosquitto.RevokeCommands(name))
}

// control sends commands to the plugin, as an operator.
func (d *debian) control(command []byte, err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
	conn, err := d.dialTLS(d.admin)
	if err != nil {
		d.t.Fatal(err)
	}
	defer conn.Close()
	p, _, err := connectPeer(conn, mosquitto.AdminName)
	if err != nil {
		d.t.Fatalf("%v\n%s", err, d.log())
	}
	if code, err := p.publish(mosquitto.ControlTopic, string(command), false); err != nil || code >= 0x80 {
		d.t.Fatal(code, err)
	}
}

func (d *debian) refusesWillsAtOnce() bool { return false }
func (d *debian) supportsLegacy() bool     { return false }

func TestPermissions_Mosquitto(t *testing.T) {
	testPermissionMatrix(t, "topics-mosquitto", func(t *testing.T) backend { return newDebian(t) })
}

// A client with the server's certificate, stolen from its pod, cannot change permissions.
func TestMosquitto_ServerCannotChangePermissions(t *testing.T) {
	d := newDebian(t)
	s := newSetup(t, d)
	robot := s.connectSubscriber(robotPermissions("r1"))
	server := s.mustConnect(s.connect("k8s4r-server"))
	for name, command := range map[string]func(string) ([]byte, error){"admit r3": mosquitto.AdmitCommands, "revoke r1": mosquitto.RevokeCommands} {
		commands, err := command(name[len(name)-2:])
		if err != nil {
			t.Fatal(err)
		}
		if code, err := server.publish(mosquitto.ControlTopic, string(commands), false); err != nil || code < 0x80 {
			t.Errorf("%s: reason code %#x, %v", name, code, err)
		}
	}
	if _, err := robot.drainMessages(); err != nil {
		t.Errorf("r1 was disconnected: %v", err)
	}
	s.certs["r3"] = d.ca.NewClientCertificate("r3", time.Hour)
	unknown := s.mustConnect(s.connect("r3"))
	if code, err := unknown.publish("k8s4r/robots/r3/register", "x", false); err == nil && code < 0x80 {
		t.Errorf("r3 may publish: %#x", code)
	}
}

// Without a limit any client could use up the connections of the broker.
func TestMosquitto_LimitsConnections(t *testing.T) {
	files, err := mosquitto.Config{Listen: ":8883", Dir: "/d", CAFile: "a", CertFile: "b", KeyFile: "c", Plugin: "/p.so"}.Files()
	if err != nil {
		t.Fatal(err)
	}
	conf := string(files[mosquitto.ConfFile])
	listener, bound := strings.Index(conf, "\nlistener "), strings.Index(conf, "\nmax_connections 16384\n")
	if listener < 0 || bound < listener { // settings before the first listener have no effect
		t.Errorf("%s", conf)
	}
}
